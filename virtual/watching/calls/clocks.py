"""What must have happened before what: a vector clock a rank, which messages, collectives and the store carry on."""

from typing import Any

import numpy as np
import numpy.typing as npt

from virtual.ranks.rank import Rank
from virtual.ranks.watching import Watcher

Clock = npt.NDArray[np.int64]


class Clocks(Watcher):
    """Each rank's clock counts what it has posted, and of each other rank what it can know of."""

    def __init__(self) -> None:
        super().__init__()
        self._clocks: dict[Rank, Clock] = {}
        self._keys: dict[tuple[int, str], Clock] = {}

    def of(self, rank: Rank) -> Clock:
        """Return a rank's clock."""
        clock, size = self._clocks.get(rank), len(rank.job.ranks)
        if clock is None or len(clock) < size:  # ranks may be started one by one
            longer = np.zeros(size, np.int64)
            if clock is not None:
                longer[: len(clock)] = clock
            clock = self._clocks[rank] = longer
        return clock

    def tick(self, rank: Rank) -> int:
        """Count something that a rank does; return its number."""
        clock = self.of(rank)
        clock[rank.number] += 1
        return int(clock[rank.number])

    def learn(self, rank: Rank, clock: Clock) -> None:
        """Have a rank know what another knew."""
        own = self.of(rank)[: len(clock)]
        np.maximum(own, clock, out=own)

    def posted(self, posted: Any) -> None:
        self.tick(posted.rank)
        posted.clock = self._clocks[posted.rank].copy()

    def complete(self, collective: Any) -> None:
        calls = collective.in_order()
        exchange = calls[0].exchange
        root = calls[exchange.root]
        if exchange.from_root:
            for call in calls:
                call.learnt = root.clock
        else:
            merged = np.maximum.reduce([call.clock for call in calls])
            for call in [root] if exchange.to_root else calls:
                call.learnt = merged

    def met(self, sender: Any, receiver: Any) -> None:
        receiver.learnt = sender.clock

    def waited(self, posted: Any) -> None:
        if posted.learnt is not None:
            self.learn(posted.rank, posted.learnt)

    def key_set(self, rank: Rank, key: str) -> None:
        self.tick(rank)
        known = self._keys.get((rank.job.number, key))
        clock = self.of(rank)
        self._keys[rank.job.number, key] = clock.copy() if known is None else np.maximum(known, clock)

    def key_seen(self, rank: Rank, key: str) -> None:
        known = self._keys.get((rank.job.number, key))
        if known is not None:
            self.learn(rank, known)
