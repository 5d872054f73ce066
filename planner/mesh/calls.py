"""Collectives of a step: which devices take part, with how many bytes, and how often."""

from collections.abc import Iterable
from typing import NamedTuple

from planner.hosts import SHARES, Group


def sent_bytes(collective: str, nbytes: float, group: Group) -> float:
    """Return the bytes that each device sends, by the best algorithms for large buffers.

    >>> sent_bytes("all_reduce", 100.0, Group(4))
    150.0
    """
    return nbytes * SHARES[collective](group.size)


class Call(NamedTuple):
    """A collective that a device takes part in, so many ``times`` a step: bytes of the whole buffer, and its group.

    Of local SGD, whose steps differ, ``times`` are those of the mean step.
    """

    collective: str
    nbytes: float
    group: Group
    times: float = 1

    @property
    def sent(self) -> float:
        """Bytes that the device sends."""
        return self.times * sent_bytes(self.collective, self.nbytes, self.group)


def join_calls(calls: Iterable[Call]) -> tuple[Call, ...]:
    """Return the calls with those that are alike in one.

    >>> join_calls([Call("all_reduce", 8.0, Group(2)), Call("all_reduce", 8.0, Group(2), 3)])
    (Call(collective='all_reduce', nbytes=8.0, group=Group(size=2, stride=1), times=4),)
    """
    found: dict[tuple[str, float, Group], float] = {}
    for one in calls:
        found[one[:3]] = found.get(one[:3], 0) + one.times
    return tuple(Call(*key, times) for key, times in found.items() if key[2].size > 1 and times)
