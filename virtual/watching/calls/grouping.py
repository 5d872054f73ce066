"""Find calls of groups by non-members, and groups that some ranks never create."""

from virtual.diagnosis.hangs import find_mismatched_groups, find_missing_groups
from virtual.ranks.rank import Rank, RankJob
from virtual.ranks.sites import find_site
from virtual.ranks.watching import Watcher

MEMBERS = "call it only on members: if dist.get_rank() in ranks"


class Grouping(Watcher):
    def outside(self, rank: Rank, verb: str) -> None:
        title = f"{{ranks}} called {verb} on a group without being a member: the call does nothing"
        self.find("non-member", title, rank, find_site(), MEMBERS)

    def made_group(self, rank: Rank, ranks: tuple[int, ...], is_local: bool) -> None:
        if not is_local:
            rank.made_groups.append((ranks, find_site()))

    def ended(self, job: RankJob) -> None:
        finding = find_mismatched_groups(job) or find_missing_groups(job)
        if finding is not None:
            self.tell(job, finding)
