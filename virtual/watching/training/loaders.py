"""Samplers that do not share data out: with other seeds, with the places of other ranks, or with an epoch for ever."""

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from torch.utils.data import Subset

from virtual.ranks.finding import FindingPlace, ProgramFinding
from virtual.ranks.rank import Rank
from virtual.ranks.sites import CallSite, find_site
from virtual.ranks.watching import Watcher

SET_EPOCH = "call sampler.set_epoch(epoch) at the beginning of each epoch"
ONE_SEED = "give the sampler of all ranks the same seed; set_epoch makes epochs differ"
ONE_SPLIT = "split the data set alike on all ranks: random_split(..., generator=torch.Generator().manual_seed(0))"
OWN_PLACE = "give it rank=dist.get_rank(), or neither rank nor num_replicas"


@dataclass(eq=False)
class SamplerLog:
    """A sampler of a rank: where it was made, and with which epochs something was learnt."""

    site: CallSite
    number: int  # among those of the rank
    learnt: set[int]
    is_compared: bool = False
    is_epoch_set: bool = False  # since it was last gone through


class Samplers(Watcher):
    """Knows the samplers of all ranks, and which one each rank goes through."""

    def __init__(self) -> None:
        super().__init__()
        self._logs: WeakKeyDictionary[Any, SamplerLog] = WeakKeyDictionary()
        self._counts: dict[Rank, int] = {}
        self._met: dict[tuple[int, int], dict[Rank, Any]] = {}
        self._now: dict[Rank, tuple[Any, int, bool, CallSite]] = {}

    def made_sampler(self, rank: Rank, sampler: Any) -> None:
        number = self._counts.get(rank, 0)
        self._counts[rank] = number + 1
        self._logs[sampler] = SamplerLog(find_site(), number, set())

    def setting_epoch(self, rank: Rank, sampler: Any) -> None:
        if sampler in self._logs:  # a program that begins anew, or with another model, has epochs again
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
            met = self._met.setdefault((rank.job.number, log.number), {})
            met[rank] = sampler
            if len(met) == len(rank.job.ranks) > 1:
                self._compare(met)

    def backward_ended(self, rank: Rank) -> None:
        if rank not in self._now:
            return
        sampler, epoch, is_again, site = self._now[rank]
        self._logs[sampler].learnt.add(epoch)
        if is_again:
            title = f"an epoch is trained in the order of epoch {epoch} once more, as set_epoch is not called"
            self.find("epoch", title, rank, site, SET_EPOCH)

    def _compare(self, met: dict[Rank, Any]) -> None:
        samplers = list(met.values())
        if any(one.num_replicas != len(met) or len(one.dataset) != len(samplers[0].dataset) for one in samplers):
            return
        if len({one.rank for one in samplers}) < len(met):
            title = f"several ranks take the same part of the data: rank= is {sorted(one.rank for one in samplers)}"
            self._tell(met, dict.fromkeys(met, "makes its sampler"), title, OWN_PLACE)
        elif all(one.shuffle for one in samplers) and len({one.seed for one in samplers}) > 1:
            title = "every rank shuffles with a seed of its own, so parts overlap and some samples are left out"
            self._tell(met, {rank: f"seed {one.seed}" for rank, one in met.items()}, title, ONE_SEED)
        elif len({tuple(one.dataset.indices) for one in samplers if isinstance(one.dataset, Subset)}) > 1:
            title = "every rank shares out a subset of its own, so that what one tests by others may learn by"
            self._tell(met, dict.fromkeys(met, "makes its sampler"), title, ONE_SPLIT)

    def _tell(self, met: dict[Rank, Any], said: dict[Rank, str], title: str, advice: str) -> None:
        together: dict[tuple[str, CallSite], list[int]] = {}
        for rank, words in said.items():
            together.setdefault((words, self._logs[met[rank]].site), []).append(rank.number)
        found = [FindingPlace(tuple(sorted(numbers)), words, site) for (words, site), numbers in together.items()]
        places = tuple(sorted(found, key=lambda place: place.ranks))
        self.tell(next(iter(met)).job, ProgramFinding("sampler", title, places, advice))
