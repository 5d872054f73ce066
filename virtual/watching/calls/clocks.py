"""What must have happened before what: a vector clock a rank, which messages, collectives and the store carry on."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from virtual.ranks.rank import Rank
from virtual.ranks.watching import Watcher

Clock = npt.NDArray[np.int64]


NOTHING: Clock = np.zeros(0, np.int64)  # of who knows of nothing


class Clocks(Watcher):
    """Each rank's clock counts what watchers note of it, and of each other rank what it can know of.

    Clocks are never changed, so that they can be shared: a rank that learns more gets another.
    """

    def __init__(self) -> None:
        super().__init__()
        self._clocks: defaultdict[Rank, Clock] = defaultdict(lambda: NOTHING)
        self._keys: defaultdict[tuple[int, str], Clock] = defaultdict(lambda: NOTHING)

    def knows(self, rank: Rank, other: Rank, number: int) -> bool:
        """Return whether a rank can know what another did when it counted to a number."""
        clock = self._clocks[rank]
        return other.number < len(clock) and bool(clock[other.number] >= number)

    def tick(self, rank: Rank) -> int:
        """Count something that a rank does; return its number."""
        clock = _merge([np.zeros(len(rank.job.ranks), np.int64), self._clocks[rank]])
        clock[rank.number] += 1
        self._clocks[rank] = clock
        return int(clock[rank.number])

    def posted(self, posted: Any) -> None:
        posted.clock = self._clocks[posted.rank]

    def complete(self, collective: Any) -> None:
        calls = collective.in_order()
        exchange = calls[0].exchange
        root = calls[exchange.root]
        if exchange.from_root:
            for call in calls:
                call.learnt = root.clock
        else:
            merged = _merge([call.clock for call in calls])
            for call in [root] if exchange.to_root else calls:
                call.learnt = merged

    def met(self, sender: Any, receiver: Any) -> None:
        receiver.learnt = sender.clock

    def waited(self, posted: Any) -> None:
        if posted.learnt is not None and posted.learnt is not posted.clock:
            self._clocks[posted.rank] = _merge([self._clocks[posted.rank], posted.learnt])

    def key_set(self, rank: Rank, key: str) -> None:
        name = rank.job.number, key
        self._keys[name] = _merge([self._keys[name], self._clocks[rank]])

    def key_seen(self, rank: Rank, key: str) -> None:
        self._clocks[rank] = _merge([self._clocks[rank], self._keys[rank.job.number, key]])


def _merge(clocks: Iterable[Clock]) -> Clock:
    """Return the clock of who knows all that these do."""
    unlike = {id(clock): clock for clock in clocks if len(clock)}
    if len(unlike) < 2:
        return next(iter(unlike.values()), NOTHING)
    found = np.zeros(max(map(len, unlike.values())), np.int64)
    for clock in unlike.values():
        np.maximum(found[: len(clock)], clock, out=found[: len(clock)])
    return found
