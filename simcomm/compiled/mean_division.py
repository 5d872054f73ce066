"""What the mean costs at the end: whoever holds reduced data divides it."""

import numpy as np

from collectives.parts import reduced_counts
from simcomm.compiled.engine_input import AnySchedule, EngineInput
from simcomm.compiled.routes import Floats
from simcomm.model.trouble import DIVISION


def scaling_seconds(inputs: EngineInput) -> Floats:
    """Return the seconds that each rank divides for; shape [world_size]."""
    program = inputs.schedule
    elements = reduced_counts(program.algorithm.spec, program.world_size, program.root, inputs.n)
    seconds = inputs.transport.gamma * inputs.itemsize * elements
    if not inputs.trouble.ranks and inputs.trouble.compute is None:
        return seconds
    ranks = np.arange(program.world_size)
    return seconds * inputs.trouble.slowdown(inputs.turn, ranks, DIVISION, steps_of(program))


def steps_of(program: AnySchedule) -> int:
    """How many steps the longest channel of any rank has."""
    return program.steps
