"""Computing that takes no time, or the processor time of this machine."""

import time
from contextlib import AbstractContextManager, nullcontext

from virtual.ranks.rank import Rank


class NoComputing:
    """What ranks compute takes no time."""

    def charge(self, rank: Rank) -> None:
        """Put nothing on the clock."""

    def forget(self, rank: Rank) -> None:
        """Leave out nothing."""

    def counting(self, rank: Rank) -> AbstractContextManager[object]:
        """Return a context in which nothing is counted."""
        return nullcontext()


class MeasuredComputing:
    """What ranks compute takes the processor time of their threads, times ``scale``."""

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale
        self._marks: dict[Rank, float] = {}

    def charge(self, rank: Rank) -> None:
        """Put the processor time since the last mark on the clock."""
        now = time.thread_time()
        rank.spend(max(0.0, now - self._marks.get(rank, now)) * self.scale)
        self._marks[rank] = now

    def forget(self, rank: Rank) -> None:
        """Set the mark to now."""
        self._marks[rank] = time.thread_time()

    def counting(self, rank: Rank) -> AbstractContextManager[object]:
        """Return a context in which nothing more is counted."""
        return nullcontext()
