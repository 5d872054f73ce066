"""Refuse a schedule that is too large before it is built, by what a few of its ranks say."""

from functools import lru_cache
from itertools import chain
from statistics import median_high
from typing import NamedTuple

from collectives.budget import Gigabyte, allowed, check_fits
from collectives.declaration import Algorithm
from collectives.schedule.schedule import ProgramCall, make_call
from collectives.step import Kind

MOST_OPERATIONS = 100_000_000  # two a message
SAMPLE = 130_000  # operations of a rank that are looked at, which takes a fifth of a second


@lru_cache(maxsize=64)
def estimate_operations(algorithm: Algorithm, world_size: int, root: int = 0) -> int:
    """Return about how many operations all ranks say together: as many each as the middle one of three says.

    Of a rank no more are counted than ``SAMPLE`` or its share of ``MOST_OPERATIONS``, so that there may be more;
    where two of them say more than that share, the third is not asked. It is 0 for a program that fails.

    >>> from collectives import find_algorithm
    >>> estimate_operations(find_algorithm("all_reduce/ring"), 4)
    48
    """
    counted: list[int] = []
    try:
        for rank in dict.fromkeys((world_size // 2, min(1, world_size - 1), world_size - 1)):
            counted.append(_look_at(algorithm, world_size, root, rank).operations)
            if len(counted) == 2 and min(counted) * world_size > MOST_OPERATIONS:
                break
    except (Exception, SystemExit):  # of the user's code: what it did is told when the schedule is built
        return 0
    return median_high(counted) * world_size


class _Look(NamedTuple):
    """What one rank says, as far as it was looked at: its operations, and the ranks that it sends to."""

    operations: int
    peers: int


@lru_cache(maxsize=64)
def _look_at(algorithm: Algorithm, world_size: int, root: int, rank: int) -> _Look:
    """Look at ``SAMPLE`` operations of a rank or so, or its share of ``MOST_OPERATIONS``. Raises what it does."""
    most = max(SAMPLE, MOST_OPERATIONS // world_size + 1)
    peers: set[int] = set()
    number = 0
    for step in chain.from_iterable(make_call(algorithm, world_size, root).run_alone(rank)):
        peers.update(op.peer for op in step if op.kind == Kind.SEND)
        number += len(step)
        if number > most:
            break
    return _Look(number, len(peers))


def check_operations(algorithm: Algorithm, world_size: int, root: int = 0) -> None:
    """Raise TooLarge for a schedule of more operations than can be written down."""
    operations = estimate_operations(algorithm, world_size, root)
    what = (
        f"{algorithm.full_name}, world size {world_size}: about {operations:,} operations ({operations // 2:,} "
        "messages) or more would take minutes and gigabytes to write down"
    )
    check_fits(operations, Gigabyte.TABLED, what, "ask for an algorithm in which all ranks say the same, such as ring")


@lru_cache(maxsize=64)
def estimate_pairs(algorithm: Algorithm, world_size: int, root: int = 0) -> int:
    """Return about how many pairs of ranks send to each other: for all ranks the fewest of two in the middle.

    Of a rank not all operations are looked at, so that there may be more; the second is asked where the first sends to
    too many. It is 0 for a program that fails.

    >>> from collectives import find_algorithm
    >>> estimate_pairs(find_algorithm("all_to_all/direct"), 100), estimate_pairs(find_algorithm("all_reduce/ring"), 100)
    (9900, 100)
    """
    fewest = world_size
    try:
        for rank in dict.fromkeys((world_size // 2, (world_size - 1) // 2)):
            fewest = min(fewest, _look_at(algorithm, world_size, root, rank).peers)
            if fewest * world_size <= allowed(Gigabyte.PAIRS):
                break
    except (Exception, SystemExit):  # of the user's code: what it did is told when the schedule is built
        return 0
    return fewest * world_size


def check_pairs(call: ProgramCall, pairs: int) -> None:
    """Raise TooLarge where more ranks send to each other than there is memory for their routes."""
    check_fits(pairs, Gigabyte.PAIRS, f"{call.describe()}: {pairs:,} pairs of ranks or more send to each other")
