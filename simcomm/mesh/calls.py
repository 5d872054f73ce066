"""Collectives of a step: which devices of a mesh take part, how many bytes, and how often."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

SHARES: dict[str, Callable[[int], float]] = {  # of the buffer that a rank sends
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
    "broadcast": lambda n: 1.0,
    "reduce": lambda n: 1.0,
    "send_recv": lambda n: 1.0,
}


class Group(NamedTuple):
    """Devices that communicate: ``size`` of them, each ``stride`` after the one before; others like it do the same."""

    size: int
    stride: int = 1

    def on_host(self, node: int) -> tuple[tuple[int, ...], ...]:
        """Return which of a host's ``node`` devices such groups join, a tuple for each group's part of the host.

        >>> Group(2, 2).on_host(8)
        ((0, 2), (1, 3), (4, 6), (5, 7))
        """
        local = max(1, min(self.size, node // self.stride))
        apart = min(self.stride, max(1, node // local))
        span = apart * local
        return tuple(
            tuple(range(first + offset, first + span, apart))
            for first in range(0, node - span + 1, span)
            for offset in range(apart)
        )


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
