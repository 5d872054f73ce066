"""Losses of unequal numbers of samples or tokens, which ranks average as if they were equally many."""

from typing import Any

from virtual.ranks.finding import FindingPlace, ProgramFinding, format_ranks
from virtual.ranks.rank import Rank
from virtual.ranks.watching import Watcher
from virtual.watching.training.bonds import Bonds
from virtual.watching.training.logs import OptimizerLog, OptimizerLogs
from virtual.watching.training.losses import read_sample_weight

SAME = 1e-3  # relative difference of weights that is rounding
TWICE = 2  # steps with unlike weights, as one may be of a last batch
BY_ALL = (
    "divide the sum of the losses by the samples of all ranks (all_reduce the count); under DDP, multiply it by the "
    "number of ranks"
)


class SampleWeights(Watcher):
    """Compares the weight of a sample on ranks whose gradients are reduced together."""

    def __init__(self, logs: OptimizerLogs, bonds: Bonds) -> None:
        super().__init__()
        self.logs, self.bonds = logs, bonds
        self._weights: dict[Rank, list[float | None]] = {}  # of the backward passes since the last step
        self._met: dict[tuple[int, int, int], dict[OptimizerLog, float]] = {}
        self._unlike: dict[tuple[int, int], int] = {}

    def backward_begins(self, rank: Rank, roots: tuple[Any, ...]) -> None:
        self._weights.setdefault(rank, []).append(read_sample_weight(roots))

    def stepping(self, rank: Rank, optimizer: Any) -> None:
        log, weights = self.logs.of(rank, optimizer), self._weights.pop(rank, [])
        bonds = [self.bonds.of(rank, one) for one in log.parameters]
        known = [bond for bond in bonds if bond is not None]
        if len(weights) != 1 or weights[0] is None or not known or not log.is_watched(log.count):
            return
        which = (rank.job.number, log.number)
        met = self._met.setdefault((*which, log.count), {})
        met[log] = weights[0]
        if len(met) == len(known[0].parameters):
            del self._met[(*which, log.count)]
            if max(met.values()) - min(met.values()) > SAME * max(map(abs, met.values())):
                self._unlike[which] = self._unlike.get(which, 0) + 1
                if self._unlike[which] == TWICE:
                    self._tell(met)

    def _tell(self, met: dict[OptimizerLog, float]) -> None:
        logs = sorted(met, key=lambda log: log.rank.number)
        places = tuple(
            FindingPlace((log.rank.number,), f"averages a loss of {1 / met[log]:.4g} samples", log.last)
            for log in logs[:4]
        )
        who = format_ranks(log.rank.number for log in logs)
        title = f"{who} average losses of different numbers of samples or tokens as if they were equally many"
        self.tell(logs[0].rank.job, ProgramFinding("unequal weights", title, places, BY_ALL))
