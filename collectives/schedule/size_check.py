"""Refuse a schedule that is too large before it is built, by what a few of its ranks say."""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain
from statistics import median_high
from typing import NamedTuple

from collectives.declaration import Algorithm
from collectives.errors import TooLarge
from collectives.schedule.call import ProgramCall, make_call
from collectives.step import Kind, Step

MOST_OPERATIONS = 100_000_000  # two a message
MOST_COUNTED = 130_000  # of a rank: what a fifth of a second is enough for
MOST_ASKED = 10_000_000  # where every rank is asked for its program; a minute, and a gigabyte
MOST_PAIRS = 20_000_000  # of ranks that send to each other, whose routes are found


@lru_cache(maxsize=64)
def estimate_operations(algorithm: Algorithm, world_size: int, root: int = 0) -> int:
    """Return about how many operations all ranks say together: as many each as the middle one of three says.

    Of a rank no more are counted than ``MOST_COUNTED`` or its share of ``MOST_OPERATIONS``, so that there may be more;
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
    """Look at about ``MOST_COUNTED`` operations of a rank, or its share of ``MOST_OPERATIONS``. Raises what it does."""
    most = max(MOST_COUNTED, MOST_OPERATIONS // world_size + 1)
    peers: set[int] = set()
    number = 0
    for step in chain.from_iterable(make_call(algorithm, world_size, root).run(rank)):
        peers.update(op.peer for op in step if op.kind == Kind.SEND)
        number += len(step)
        if number > most:
            break
    return _Look(number, len(peers))


def _count(programs: Iterable[Iterator[Step]], most: int) -> int:
    number = 0
    for step in chain.from_iterable(programs):
        number += len(step)
        if number > most:
            break
    return number


def count_operations(algorithm: Algorithm, world_size: int, root: int = 0) -> int:
    """Return how many operations one rank says, the middle one; 0 for a program that fails.

    >>> from collectives import find_algorithm
    >>> count_operations(find_algorithm("all_reduce/ring"), 4)
    12
    """
    try:
        return _count(make_call(algorithm, world_size, root).run(world_size // 2), MOST_OPERATIONS)
    except (Exception, SystemExit):  # of the user's code: what it did is told when the schedule is built
        return 0


def check_operations(algorithm: Algorithm, world_size: int, operations: int, most: int) -> None:
    """Raise TooLarge for more than so many operations; it names the number, the limit and a way out."""
    if operations > most:
        raise TooLarge(
            f"{algorithm.full_name}, world size {world_size}: about {operations:,} operations "
            f"({operations // 2:,} messages) or more, where {most:,} are the limit, "
            "which would take minutes and gigabytes to write down; ask for fewer ranks (--set cluster.hosts=N), or for "
            "an algorithm in which all ranks say the same, such as ring"
        )


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
            if fewest * world_size <= MOST_PAIRS:
                break
    except (Exception, SystemExit):  # of the user's code: what it did is told when the schedule is built
        return 0
    return fewest * world_size


def check_pairs(call: ProgramCall, pairs: int) -> None:
    """Raise TooLarge where more ranks send to each other than there is memory for their routes."""
    if pairs > MOST_PAIRS:
        raise TooLarge(
            f"{call.describe()}: {pairs:,} pairs of ranks or more send to each other, and up to "
            f"{MOST_PAIRS:,} fit into memory; ask for fewer ranks (--set cluster.hosts=N)"
        )
