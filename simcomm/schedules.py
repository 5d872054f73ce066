"""Build the schedules of algorithms, once per process, and verify them before simulation."""

from functools import lru_cache

from collectives.budget import Gigabyte, allowed, check_fits
from collectives.declaration import Algorithm
from collectives.proof.completion import completion_order
from collectives.proof.verifier import verify
from collectives.schedule.build import build_schedule
from collectives.schedule.schedule import Schedule, StepTable, make_call
from collectives.schedule.size_check import (
    check_operations,
    check_pairs,
    estimate_pairs,
)
from collectives.schedule.symbolic_build import AnySchedule, build_compact, build_symmetric
from collectives.schedule.symmetric import SymmetricSchedule

VERIFIED_UP_TO = 64  # ranks; larger programs are only checked for deadlocks


def verified_schedule(algorithm: Algorithm, world_size: int, root: int = 0) -> Schedule:
    """Return an algorithm's schedule after checking it for deadlocks.

    For up to 64 ranks, its result is verified too. Raise ProgramError if a check fails.
    """
    if world_size <= VERIFIED_UP_TO:
        return _proved_schedule(algorithm, world_size, root)
    check_operations(algorithm, world_size, root)
    schedule = build_schedule(algorithm, world_size, root)
    for _ in completion_order(schedule):
        pass
    return schedule


@lru_cache(maxsize=32)
def _proved_schedule(algorithm: Algorithm, world_size: int, root: int) -> Schedule:
    verify(algorithm, world_size, root)
    return build_schedule(algorithm, world_size, root)


@lru_cache(maxsize=16)
def compact_schedule(algorithm: Algorithm, world_size: int, root: int = 0) -> AnySchedule:
    """Return an algorithm's schedule, preferably in the symmetric form, which needs the least memory and time.

    Schedules of more than 64 ranks are not checked for deadlocks, so use them only with engines that detect deadlocks.
    Raise ProgramError if a program for up to 64 ranks deadlocks or delivers a wrong result.
    """
    if world_size > VERIFIED_UP_TO:
        return unverified_schedule(algorithm, world_size, root)
    proved = _proved_schedule(algorithm, world_size, root)
    if not algorithm.is_builtin:  # a second run of a user's program may differ from the proved one
        return proved
    return build_symmetric(algorithm, world_size, root) or proved


@lru_cache(maxsize=32)
def unverified_schedule(algorithm: Algorithm, world_size: int, root: int = 0) -> SymmetricSchedule | StepTable:
    """Return the schedule of an algorithm that is known to be correct, in the symmetric form if it has one.

    Raise TooLarge if the schedule is too large to simulate.
    """
    if world_size**2 > allowed(Gigabyte.PAIRS):  # before the schedule is built
        check_pairs(make_call(algorithm, world_size, root), estimate_pairs(algorithm, world_size, root))
    return build_compact(algorithm, world_size, root)


def check_messages(algorithm: Algorithm, world_size: int, root: int, times: int, most: int, too_many: str) -> None:
    """Raise TooLarge if ``times`` runs of a collective have more messages than the memory limit allows.

    ``most`` is the number of messages per gigabyte. ``too_many`` ends the error message, for example "to be recorded".
    """
    messages, where = times * compact_schedule(algorithm, world_size, root).messages, " in all steps" * (times > 1)
    text = f"{algorithm.full_name}, world size {world_size}: its {messages:,} messages{where} are too many {too_many}"
    check_fits(messages, most, text)
