"""Check that samplers split the data between ranks, and that inputs of tensor-parallel ranks are equal."""

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from torch.utils.data import Subset

from virtual.matching.samples import are_unlike, is_plain, take_sample
from virtual.ranks.finding import FindingPlace, ProgramFinding, format_ranks
from virtual.ranks.rank import Rank
from virtual.ranks.sites import CallSite, find_site
from virtual.ranks.watching import Watcher

MOST = 64  # tensors of a group are compared
ALIKE = (
    "feed the same batch to all ranks of a tensor-parallel group (seed and sample by the data-parallel rank, "
    "mesh['dp'].get_local_rank()), and use the same random numbers for dropout on replicated activations"
)


class ReplicatedTensors(Watcher):
    """Compares the tensors that ranks of a mesh dimension declare as replicated."""

    def __init__(self) -> None:
        super().__init__()
        self._told_of: set[Any] = set()

    def replicated(self, rank: Rank, tensor: Any, mesh: Any, placements: Any) -> None:
        if not is_plain(tensor) or mesh.get_coordinate() is None:
            return
        for dimension, placement in enumerate(placements):
            if placement.is_replicate() and mesh.size(dimension) > 1:
                self._compare(rank, tensor, mesh.get_group(dimension).group)

    def _compare(self, rank: Rank, tensor: Any, group: Any) -> None:
        number = self.count(rank, group)
        if number > MOST or group in self._told_of:
            return
        values = [*(self.gather((group, number), rank, take_sample(tensor), len(group.ranks)) or {}).values()]
        if any(are_unlike(values[0], other, 0.0) for other in values[1:]):
            self._told_of.add(group)
            where = FindingPlace(tuple(sorted(group.ranks)), "", find_site())
            title = (
                f"a tensor of shape {list(tensor.shape)} differs between {format_ranks(where.ranks)}, "
                "whose layers expect it to be replicated"
            )
            self.tell(rank.job, ProgramFinding("input mismatch", title, (where,), ALIKE))


SET_EPOCH = "call sampler.set_epoch(epoch) at the start of each epoch"
ONE_SEED = "pass the same seed to the sampler on all ranks; set_epoch makes epochs differ"
ONE_SPLIT = "split the data set identically on all ranks: random_split(..., generator=torch.Generator().manual_seed(0))"
OWN_PLACE = "pass rank=dist.get_rank(), or omit both rank and num_replicas"


@dataclass(eq=False)
class SamplerLog:
    """A rank's sampler, with the line that created it. ``learnt`` has the epochs for which training has used it."""

    site: CallSite
    number: int  # among the samplers of its rank, from 1
    learnt: set[int]
    is_compared: bool = False
    is_epoch_set: bool = False  # since its last iteration


class Samplers(Watcher):
    """Finds samplers that repeat an epoch's order, and ranks whose samplers do not split the data set."""

    def __init__(self) -> None:
        super().__init__()
        self._logs: WeakKeyDictionary[Any, SamplerLog] = WeakKeyDictionary()
        self._now: dict[Rank, tuple[Any, int, bool, CallSite]] = {}

    def made_sampler(self, rank: Rank, sampler: Any) -> None:
        self._logs[sampler] = SamplerLog(find_site(), self.count(rank), set())

    def setting_epoch(self, rank: Rank, sampler: Any) -> None:
        if sampler in self._logs:  # a program that starts another training repeats epochs
            self._logs[sampler].is_epoch_set = True

    def sampling(self, rank: Rank, sampler: Any) -> None:
        log = self._logs.get(sampler)
        if log is None:
            return
        is_again = sampler.shuffle and sampler.epoch in log.learnt and not log.is_epoch_set
        self._now[rank] = (sampler, sampler.epoch, is_again, find_site())
        log.is_epoch_set = False
        if not log.is_compared:
            log.is_compared = True
            by_rank = self.gather((rank.job.number, log.number), rank, sampler, len(rank.job.ranks))
            if by_rank is not None and len(by_rank) > 1:
                self._compare(by_rank)

    def backward_ended(self, rank: Rank) -> None:
        if rank not in self._now:
            return
        sampler, epoch, is_again, site = self._now[rank]
        self._logs[sampler].learnt.add(epoch)
        if is_again:
            title = f"an epoch repeats the sample order of epoch {epoch}, because set_epoch is not called"
            self.find("set_epoch", title, rank, site, SET_EPOCH)

    def _compare(self, by_rank: dict[Rank, Any]) -> None:
        samplers = list(by_rank.values())
        sizes = {(sampler.num_replicas, len(sampler.dataset)) for sampler in samplers}
        if len(sizes) > 1 or samplers[0].num_replicas != len(by_rank):
            return
        if len({sampler.rank for sampler in samplers}) < len(by_rank):
            numbers = sorted(sampler.rank for sampler in samplers)
            title = f"several ranks use the same part of the data: they pass rank={numbers}"
            self._tell(by_rank, "creates its sampler", title, OWN_PLACE)
        elif all(sampler.shuffle for sampler in samplers) and len({sampler.seed for sampler in samplers}) > 1:
            title = "ranks shuffle with different seeds, so their parts overlap and some samples are never used"
            self._tell(by_rank, "seed {seed}", title, ONE_SEED)
        elif len({tuple(sampler.dataset.indices) for sampler in samplers if isinstance(sampler.dataset, Subset)}) > 1:
            title = "ranks split the data set differently, so a rank may train on another rank's test samples"
            self._tell(by_rank, "creates its sampler", title, ONE_SPLIT)

    def _tell(self, by_rank: dict[Rank, Any], text: str, title: str, advice: str) -> None:
        places = [(rank, text.format(seed=one.seed), self._logs[one].site) for rank, one in by_rank.items()]
        self.compare("sampler", title, places, advice)
