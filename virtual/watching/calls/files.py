"""Find unsynchronized accesses to a file, with vector clocks that follow messages, collectives and stores."""

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from virtual.ranks.rank import Rank, RankJob
from virtual.ranks.sites import NOWHERE, CallSite, find_site
from virtual.ranks.watching import Watcher

Clock = npt.NDArray[np.int64]
NOTHING: Clock = np.zeros(0, np.int64)  # the clock of a rank without events


class Clocks(Watcher):
    """The vector clocks of the ranks. A clock is an immutable array with the number of known past events per rank."""

    def __init__(self) -> None:
        super().__init__()
        self._clocks: defaultdict[Rank, Clock] = defaultdict(lambda: NOTHING)
        self._keys: defaultdict[tuple[int, str], Clock] = defaultdict(lambda: NOTHING)

    def knows(self, rank: Rank, other: Rank, number: int) -> bool:
        """Return whether event ``number`` of ``other`` happened before the current event of ``rank``."""
        clock = self._clocks[rank]
        return other.number < len(clock) and bool(clock[other.number] >= number)

    def tick(self, rank: Rank) -> int:
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
    unlike = {id(clock): clock for clock in clocks if len(clock)}
    if len(unlike) < 2:
        return next(iter(unlike.values()), NOTHING)
    merged = np.zeros(max(map(len, unlike.values())), np.int64)
    for clock in unlike.values():
        np.maximum(merged[: len(clock)], clock, out=merged[: len(clock)])
    return merged


IGNORED = (".py", ".pyc", ".lock", ".so")  # code and lock files
NO_FILES = ("/dev/", "/proc/", "/sys/")
SAVE_ONCE = "save only on rank 0 (if dist.get_rank() == 0), or to a separate file on each rank"
BARRIER = "call barrier() on all ranks between writing and reading"


class Access(NamedTuple):
    """A rank's read or write of a file. ``number`` counts the rank's own events up to this access."""

    rank: Rank
    writes: bool
    number: int
    site: CallSite


class FileRaces(Watcher):
    """Finds unsynchronized accesses to the same file from different ranks, at least one of which writes."""

    def __init__(self, clocks: Clocks) -> None:
        super().__init__()
        self.clocks = clocks
        self._accesses: dict[tuple[int, str], list[Access]] = {}
        self._races: dict[tuple[int, str, CallSite, CallSite], dict[bool, set[Rank]]] = {}  # writers (True), readers

    def opened(self, rank: Rank, path: str, writes: bool) -> None:
        site = find_site()
        if site == NOWHERE or path.endswith(IGNORED) or path.startswith(NO_FILES):
            return
        before = self._accesses.setdefault((rank.job.number, path), [])
        for other in before:
            is_race = other.rank is not rank and (writes or other.writes)
            if is_race and not self.clocks.knows(rank, other.rank, other.number):
                lines = (other.site, site) if other.writes else (site, other.site)
                race = self._races.setdefault((rank.job.number, path, *lines), {True: set(), False: set()})
                race[writes].add(rank)
                race[other.writes].add(other.rank)
        before.append(Access(rank, writes, self.clocks.tick(rank), site))

    def ended(self, job: RankJob) -> None:
        for (number, path, written, other), race in self._races.items():
            if number != job.number:
                continue
            name = Path(path).name
            places = [(rank, f"writes {name}", written) for rank in race[True]]
            if race[False]:
                places += [(rank, f"reads {name}", other) for rank in race[False]]
                self.compare("file race", f"{name} may be read before it is written", places, BARRIER)
            else:
                places += [(rank, f"writes {name}", other) for rank in race[True] if other != written]
                self.compare("file race", f"several ranks write {name} in no defined order", places, SAVE_ONCE)
