"""``Group``: devices of a mesh that communicate with each other."""

from typing import NamedTuple


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
