"""Algorithms traced and checked before they are simulated, each once a process."""

from functools import lru_cache

from collectives.declaration import Algorithm
from collectives.proof.completion import completion_order
from collectives.proof.verifier import verify
from collectives.schedule.build import build_cyclic, build_table
from collectives.schedule.cyclic import CyclicSchedule
from collectives.schedule.schedule import Schedule, build_schedule
from collectives.schedule.table import StepTable
from simcomm.compiled.planning.engine_input import AnySchedule

PROVED_UP_TO = 64  # ranks; beyond it only deadlocks are looked for, which is what an engine could hang on


def checked(algorithm: Algorithm, world_size: int, root: int = 0) -> Schedule:
    """The traced algorithm. Raises ProgramError when it deadlocks or, up to 64 ranks, does not achieve its spec."""
    if world_size <= PROVED_UP_TO:
        return _proved(algorithm, world_size, root)
    schedule = build_schedule(algorithm, world_size, root)
    for _ in completion_order(schedule):
        pass
    return schedule


@lru_cache(maxsize=32)
def _proved(algorithm: Algorithm, world_size: int, root: int) -> Schedule:
    """Kept, as one question is often asked of several sizes and clusters."""
    verify(algorithm, world_size, root)
    return build_schedule(algorithm, world_size, root)


@lru_cache(maxsize=16)
def traced(algorithm: Algorithm, world_size: int, root: int = 0) -> AnySchedule:
    """The same by the quickest way there is, for an engine that finds deadlocks itself.

    Raises ProgramError when the algorithm, up to 64 ranks, does not achieve its spec.
    """
    if world_size > PROVED_UP_TO:
        return unproved(algorithm, world_size, root)
    proved = _proved(algorithm, world_size, root)
    return build_cyclic(algorithm, world_size, root) or proved


@lru_cache(maxsize=32)
def unproved(algorithm: Algorithm, world_size: int, root: int = 0) -> CyclicSchedule | StepTable:
    """The same of an algorithm that is known to achieve its spec, or too large to be proved."""
    return build_cyclic(algorithm, world_size, root) or build_table(algorithm, world_size, root)
