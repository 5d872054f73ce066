"""Reject a schedule that is too large before it is built. Its size is estimated from the operations of a few ranks."""

from functools import lru_cache
from itertools import chain
from statistics import median_high

from collectives.budget import Gigabyte, allowed, check_fits
from collectives.declaration import Algorithm
from collectives.schedule.schedule import ProgramCall, make_call
from collectives.step import Kind

MOST_OPERATIONS = 100_000_000  # two per message
SAMPLE = 130_000  # operations of a rank that are counted, in a fifth of a second


@lru_cache(maxsize=64)
def estimate_operations(algorithm: Algorithm, world_size: int, root: int = 0) -> int:
    """Return the estimated number of operations of all ranks: the median of three ranks times the world size.

    Counting stops after ``SAMPLE`` or ``MOST_OPERATIONS / world_size`` operations, whichever is more, so the true
    number can be larger. If the first two ranks exceed ``MOST_OPERATIONS / world_size``, the third rank is not counted.
    Return 0 if a program fails.
    """
    counted: list[int] = []
    try:
        for rank in dict.fromkeys((world_size // 2, min(1, world_size - 1), world_size - 1)):
            counted.append(_count(algorithm, world_size, root, rank)[0])
            if len(counted) == 2 and min(counted) * world_size > MOST_OPERATIONS:
                break
    except (Exception, SystemExit):  # errors of the user's code are reported when the schedule is built
        return 0
    return median_high(counted) * world_size


@lru_cache(maxsize=64)
def _count(algorithm: Algorithm, world_size: int, root: int, rank: int) -> tuple[int, int]:
    """Return the numbers of operations and of destinations of a rank. Counting stops at a limit."""
    most = max(SAMPLE, MOST_OPERATIONS // world_size + 1)
    peers: set[int] = set()
    number = 0
    for step in chain.from_iterable(make_call(algorithm, world_size, root).run_alone(rank)):
        peers.update(op.peer for op in step if op.kind == Kind.SEND)
        number += len(step)
        if number > most:
            break
    return number, len(peers)


def check_operations(algorithm: Algorithm, world_size: int, root: int = 0) -> None:
    """Raise TooLarge if an algorithm has more operations than fit into the memory limit."""
    operations = estimate_operations(algorithm, world_size, root)
    excess = (
        f"{algorithm.full_name}, world size {world_size}: about {operations:,} operations ({operations // 2:,} "
        "messages) or more would take minutes and gigabytes to build"
    )
    check_fits(operations, Gigabyte.TABLED, excess, "ask for an algorithm in which all ranks do the same, such as ring")


@lru_cache(maxsize=64)
def estimate_pairs(algorithm: Algorithm, world_size: int, root: int = 0) -> int:
    """Return the estimated number of pairs of ranks that communicate, from the peers of two middle ranks.

    The true number can be larger, because not all operations of a rank are counted. Return 0 if a program fails.
    """
    fewest = world_size
    try:
        for rank in dict.fromkeys((world_size // 2, (world_size - 1) // 2)):
            fewest = min(fewest, _count(algorithm, world_size, root, rank)[1])
            if fewest * world_size <= allowed(Gigabyte.PAIRS):
                break
    except (Exception, SystemExit):  # errors of the user's code are reported when the schedule is built
        return 0
    return fewest * world_size


def check_pairs(call: ProgramCall, pairs: int) -> None:
    """Raise TooLarge if routes between ``pairs`` pairs of ranks do not fit into the memory limit."""
    check_fits(pairs, Gigabyte.PAIRS, f"{call.describe()}: {pairs:,} pairs of ranks or more send to each other")
