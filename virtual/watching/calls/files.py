"""Files that ranks race for: nothing says which of them comes first."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from virtual.ranks.finding import FindingPlace, ProgramFinding
from virtual.ranks.rank import Rank, RankJob
from virtual.ranks.sites import NOWHERE, CallSite, find_site
from virtual.ranks.watching import Watcher
from virtual.watching.calls.clocks import Clocks

UNTOLD = (".py", ".pyc", ".lock", ".so")  # code, and files that are there to be fought for
NO_FILES = ("/dev/", "/proc/", "/sys/")
SAVE_ONCE = "save on rank 0 alone (if dist.get_rank() == 0), or in a file of each rank's own"
BARRIER = "put a barrier between writing and reading, for all ranks"


class Access(NamedTuple):
    """A rank's reading or writing of a file: ``number`` is what its clock counted."""

    rank: Rank
    writes: bool
    number: int
    site: CallSite


@dataclass
class Race:
    """Ranks that read and write one file at two lines."""

    writers: set[int]
    readers: set[int]


class FileRaces(Watcher):
    """Knows who has opened which file, and what comes after what."""

    def __init__(self, clocks: Clocks) -> None:
        super().__init__()
        self.clocks = clocks
        self._accesses: dict[tuple[int, str], list[Access]] = {}
        self._races: dict[tuple[int, str, CallSite, CallSite], Race] = {}

    def opened(self, rank: Rank, path: str, writes: bool) -> None:
        site = find_site()
        if site == NOWHERE or path.endswith(UNTOLD) or path.startswith(NO_FILES):
            return
        before = self._accesses.setdefault((rank.job.number, path), [])
        for other in before:
            if other.rank is rank or not (writes or other.writes):
                continue
            if not self.clocks.knows(rank, other.rank, other.number):
                self._note(rank, path, writes, site, other)
        before.append(Access(rank, writes, self.clocks.tick(rank), site))

    def _note(self, rank: Rank, path: str, writes: bool, site: CallSite, other: Access) -> None:
        lines = (other.site, site) if other.writes else (site, other.site)
        race = self._races.setdefault((rank.job.number, path, *lines), Race(set(), set()))
        for number, wrote in ((rank.number, writes), (other.rank.number, other.writes)):
            (race.writers if wrote else race.readers).add(number)

    def ended(self, job: RankJob) -> None:
        for (number, path, written, other), race in self._races.items():
            if number == job.number:
                self.tell(job, _tell_race(Path(path).name, written, other, race))


def _tell_race(name: str, written: CallSite, other: CallSite, race: Race) -> ProgramFinding:
    writers = FindingPlace(tuple(sorted(race.writers)), f"writes {name}", written)
    if not race.readers:
        places = (writers,) if written == other else (writers, FindingPlace(writers.ranks, f"writes {name}", other))
        title = f"{name} is written by several ranks, and nothing says who comes last"
        return ProgramFinding("file race", title, places, SAVE_ONCE)
    title = f"{name} is read where nothing says that it has been written"
    places = (writers, FindingPlace(tuple(sorted(race.readers)), f"reads {name}", other))
    return ProgramFinding("file race", title, places, BARRIER)
