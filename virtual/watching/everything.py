"""Create the watchers of a run, and collect their findings."""

from virtual.diagnosis.hangs import find_mismatched_groups, find_missing_groups
from virtual.ranks.finding import ProgramFinding
from virtual.ranks.rank import Rank, RankJob
from virtual.ranks.sites import find_site
from virtual.ranks.watching import Watcher, Watchers
from virtual.watching.calls.buffers import InFlight
from virtual.watching.calls.files import Clocks, FileRaces
from virtual.watching.calls.own_reductions import OwnReductions
from virtual.watching.training.bonds import Bonds
from virtual.watching.training.data import ReplicatedTensors, Samplers
from virtual.watching.training.gradients import Gradients
from virtual.watching.training.idle import Idleness, UnreducedParameters
from virtual.watching.training.logs import OptimizerLogs
from virtual.watching.training.losses import ReducedLosses, ShardFactors
from virtual.watching.training.replicas import Replicas

MEMBERS = "call it only on members: if dist.get_rank() in ranks"


class Grouping(Watcher):
    """Finds calls by non-members, and groups that some ranks never create."""

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


def watch_program(fake: bool, strict: bool) -> Watchers:
    """Return the watchers of a run.

    If ``strict`` is True, they also report what may be intended. If ``fake`` is True, checks of values are omitted.
    """
    clocks, logs = Clocks(), OptimizerLogs()
    bonds = Bonds(logs)
    of_calls = (clocks, FileRaces(clocks), Grouping())
    of_training = (logs, bonds, Gradients(logs, bonds, strict), Replicas(logs, bonds), UnreducedParameters(bonds))
    of_data = (ShardFactors(logs), Idleness(logs, bonds), ReducedLosses(), Samplers(), ReplicatedTensors())
    return Watchers(of_calls if fake else (*of_training, *of_data, *of_calls, InFlight(), OwnReductions()))


def tell_silent(watchers: Watchers, job: RankJob) -> list[ProgramFinding]:
    """End a job's checks, and return findings for errors that did not stop the job, such as unequal replicas."""
    if job.finding is None:
        watchers.ended(job)
    elif job.finding.kind == "exception":
        watchers.failed(job)
    return [finding for watcher in watchers.watchers for finding in watcher.findings(job)]
