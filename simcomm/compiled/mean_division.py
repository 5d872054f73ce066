"""What the mean costs at the end: whoever holds reduced data divides it."""

import numpy as np

from collectives.spec import Spec
from collectives.step import offset
from simcomm.compiled.engine_input import AnySchedule, EngineInput
from simcomm.compiled.routes import Floats
from simcomm.model.trouble import DIVISION


def scaling_seconds(inputs: EngineInput) -> Floats:
    """Of each rank."""
    program = inputs.schedule
    elements = scaled_elements(program.algorithm.spec, program.world_size, program.root, inputs.n)
    seconds = inputs.transport.gamma * inputs.itemsize * elements
    if not inputs.trouble.ranks and inputs.trouble.compute is None:
        return seconds
    ranks = np.arange(program.world_size)
    return seconds * inputs.trouble.slowdown(inputs.turn, ranks, DIVISION, steps_of(program))


def steps_of(program: AnySchedule) -> int:
    """How many steps the longest channel of any rank has."""
    return program.steps


def scaled_elements(spec: Spec, world_size: int, root: int, n: int) -> Floats:
    """Of each rank the elements that hold reduced data at the end.

    Where parts are not told apart a rank holds all or nothing, and only the root may differ from the others; where
    they are, a rank that does not hold them all holds its own.
    """
    p = world_size
    if not spec.reduces:
        return np.zeros(p)
    other = (root + 1) % p
    held = np.full(p, float(n) if _holds(spec, other, root, p, root) else 0.0)
    if spec.has_parts and not _holds(spec, other, root, p, root):
        held = np.diff([float(offset(part, n, p)) for part in range(p + 1)])
    if spec.rooted:
        held[root] = float(n) if _holds(spec, root, other, p, root) else 0.0
    return held


def _holds(spec: Spec, rank: int, part: int, world_size: int, root: int) -> bool:
    return spec.end(rank, part, world_size, root) is not None
