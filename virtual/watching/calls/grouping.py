"""Find misuse of groups: calls by non-members, unsorted ranks, and groups that some ranks never create."""

from typing import Any

from virtual.diagnosis.hangs import find_mismatched_groups, find_missing_groups
from virtual.ranks.rank import Rank, RankJob
from virtual.ranks.sites import find_site
from virtual.ranks.watching import Watcher

MEMBERS = "call it only on members: if dist.get_rank() in ranks"
SORTED = (
    "new_group sorts its ranks, so results are in ascending order of ranks; look up group ranks with "
    "dist.get_group_rank, or sort the list"
)
BY_PLACE = ("all_gather", "gather", "scatter", "reduce_scatter", "all_to_all")


class Grouping(Watcher):
    """Finds calls by non-members, groups created with unsorted ranks, and groups that some ranks never created."""

    def __init__(self) -> None:
        super().__init__()
        self._unsorted: dict[tuple[int, frozenset[int]], tuple[int, ...]] = {}
        self._looked_up: set[tuple[int, frozenset[int]]] = set()

    def outside(self, rank: Rank, verb: str) -> None:
        title = f"{{ranks}} called {verb} on a group without being a member: the call does nothing"
        self.find("non-member", title, rank, find_site(), MEMBERS)

    def made_group(self, rank: Rank, ranks: tuple[int, ...], is_local: bool) -> None:
        if list(ranks) != sorted(ranks):
            self._unsorted[rank.job.number, frozenset(ranks)] = ranks
        if not is_local:
            rank.made_groups.append((ranks, find_site()))

    def looked_up_place(self, rank: Rank, group: Any) -> None:
        virtual_group = getattr(group, "group", None)
        if virtual_group is not None:
            self._looked_up.add((rank.job.number, frozenset(virtual_group.ranks)))

    def posted(self, posted: Any) -> None:
        if not self._unsorted or not posted.is_programs or not posted.what.startswith(BY_PLACE):
            return
        key = (posted.rank.job.number, frozenset(posted.group.ranks))
        if key in self._unsorted and key not in self._looked_up:
            ranks = list(self._unsorted[key])
            call = posted.caller_name or posted.what
            title = f"the group was created with ranks {ranks}, but {call} uses the order {sorted(ranks)}"
            self.find("rank order", title, posted.rank, posted.site, SORTED)

    def ended(self, job: RankJob) -> None:
        finding = find_mismatched_groups(job) or find_missing_groups(job)
        if finding is not None:
            self.tell(job, finding)
