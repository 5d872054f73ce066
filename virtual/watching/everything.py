"""The watchers of a run, in order of their dependencies."""

from virtual.ranks.finding import ProgramFinding
from virtual.ranks.rank import RankJob
from virtual.ranks.watching import Watchers
from virtual.watching.calls.buffers import InFlight
from virtual.watching.calls.files import Clocks, FileRaces
from virtual.watching.calls.grouping import Grouping
from virtual.watching.calls.own_reductions import OwnReductions
from virtual.watching.training.bonds import Bonds
from virtual.watching.training.data import ReplicatedTensors, Samplers
from virtual.watching.training.ddp import Buffers, UnreducedParameters
from virtual.watching.training.gradients import Gradients
from virtual.watching.training.idle import Idleness
from virtual.watching.training.logs import OptimizerLogs
from virtual.watching.training.losses import ReducedLosses, ShardFactors
from virtual.watching.training.replicas import Replicas


def watch_everything(strict: bool) -> Watchers:
    """Return the watchers for a run with data. ``strict`` adds watchers that are slow or may report intended code."""
    logs, clocks = OptimizerLogs(), Clocks()
    bonds = Bonds(logs)
    return Watchers(
        (
            logs,
            bonds,
            clocks,
            Gradients(logs, bonds, strict),
            Replicas(logs, bonds),
            Buffers(logs, bonds),
            UnreducedParameters(bonds),
            ShardFactors(logs),
            Idleness(logs, bonds),
            ReducedLosses(),
            Samplers(),
            ReplicatedTensors(),
            FileRaces(clocks),
            InFlight(),
            Grouping(),
            OwnReductions(),
        )
    )


def watch_calls() -> Watchers:
    """Return the watchers for a run without tensor data: file races and misuse of groups."""
    clocks = Clocks()
    return Watchers((clocks, FileRaces(clocks), Grouping()))


def tell_silent(watchers: Watchers, job: RankJob) -> list[ProgramFinding]:
    """Return the findings for a job's errors that did not stop it, such as unequal replicas."""
    if job.finding is None:
        watchers.ended(job)
    elif job.finding.kind == "exception":
        watchers.failed(job)
    return [finding for watcher in watchers.watchers for finding in watcher.findings(job)]
