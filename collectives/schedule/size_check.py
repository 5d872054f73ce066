"""Refuse a schedule that is too large before it is built, by what a few of its ranks say."""

from collections.abc import Iterable, Iterator
from itertools import chain
from statistics import median_high

from collectives.declaration import Algorithm
from collectives.errors import InputError
from collectives.schedule.call import make_call
from collectives.step import Step

MOST_OPERATIONS = 100_000_000  # two a message
MOST_ASKED = 10_000_000  # where every rank is asked for its program; a minute, and a gigabyte


def estimate_operations(algorithm: Algorithm, world_size: int, root: int = 0) -> int:
    """Return about how many operations all ranks say together: as many each as the middle one of three says.

    No more than ``MOST_OPERATIONS`` and a few are counted. It is 0 for a program that fails.

    >>> from collectives import find_algorithm
    >>> estimate_operations(find_algorithm("all_reduce/ring"), 4)
    48
    """
    try:
        call = make_call(algorithm, world_size, root)
        ranks = sorted({min(1, world_size - 1), world_size // 2, world_size - 1})
        return median_high(_count(call.run(rank), MOST_OPERATIONS // world_size + 1) for rank in ranks) * world_size
    except (Exception, SystemExit):  # of the user's code: what it did is told when the schedule is built
        return 0


def _count(programs: Iterable[Iterator[Step]], most: int) -> int:
    number = 0
    for step in chain.from_iterable(programs):
        number += len(step)
        if number > most:
            break
    return number


def check_operations(algorithm: Algorithm, world_size: int, operations: int, most: int) -> None:
    """Raise InputError for more than so many operations; it names the number, the limit and a way out."""
    if operations > most:
        raise InputError(
            f"{algorithm.full_name}, world size {world_size}: more than {most:,} operations ({most // 2:,} messages), "
            "which would take minutes and gigabytes to write down; ask for fewer ranks (--set cluster.hosts=N), or for "
            "an algorithm in which all ranks say the same, such as ring"
        )
