"""Find samplers that do not split the data, missing set_epoch calls, and results compared in the wrong order."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.utils.data import Subset

from virtual.ranks.finding import ProgramFinding, group_places
from virtual.ranks.rank import Rank
from virtual.ranks.sites import CallSite, find_site
from virtual.ranks.watching import Watcher

SET_EPOCH = "call sampler.set_epoch(epoch) at the start of each epoch"
ONE_SEED = "pass the same seed to the sampler on all ranks; set_epoch makes epochs differ"
ONE_SPLIT = "split the data set identically on all ranks: random_split(..., generator=torch.Generator().manual_seed(0))"
OWN_PLACE = "pass rank=dist.get_rank(), or omit both rank and num_replicas"


@dataclass(eq=False)
class SamplerLog:
    """A record of a rank's sampler: the line that created it, and the epochs in which training used it."""

    site: CallSite
    number: int  # index among the samplers of its rank
    learnt: set[int]
    is_compared: bool = False
    is_epoch_set: bool = False  # since its last iteration


class Samplers(Watcher):
    """Finds samplers that repeat an epoch's order, and ranks whose samplers do not split the data set."""

    def __init__(self) -> None:
        super().__init__()
        self._logs: WeakKeyDictionary[Any, SamplerLog] = WeakKeyDictionary()
        self._counts: dict[Rank, int] = {}
        self._now: dict[Rank, tuple[Any, int, bool, CallSite]] = {}

    def made_sampler(self, rank: Rank, sampler: Any) -> None:
        number = self._counts.get(rank, 0)
        self._counts[rank] = number + 1
        self._logs[sampler] = SamplerLog(find_site(), number, set())

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
            self._tell(by_rank, dict.fromkeys(by_rank, "creates its sampler"), title, OWN_PLACE)
        elif all(sampler.shuffle for sampler in samplers) and len({sampler.seed for sampler in samplers}) > 1:
            title = "ranks shuffle with different seeds, so their parts overlap and some samples are never used"
            self._tell(by_rank, {rank: f"seed {sampler.seed}" for rank, sampler in by_rank.items()}, title, ONE_SEED)
        elif len({tuple(sampler.dataset.indices) for sampler in samplers if isinstance(sampler.dataset, Subset)}) > 1:
            title = "ranks split the data set differently, so a rank may train on another rank's test samples"
            self._tell(by_rank, dict.fromkeys(by_rank, "creates its sampler"), title, ONE_SPLIT)

    def _tell(self, by_rank: dict[Rank, Any], words_by_rank: dict[Rank, str], title: str, advice: str) -> None:
        places = group_places(
            (rank.number, words, self._logs[by_rank[rank]].site) for rank, words in words_by_rank.items()
        )
        self.tell(next(iter(by_rank)).job, ProgramFinding("sampler", title, places, advice))


KEPT = 16  # gathered tensors of a rank that are remembered
SAME_ORDER = (
    "gather the labels too, or restore the order: torch.stack(parts, 1).flatten(0, 1) undoes a DistributedSampler "
    "without shuffle"
)


class GatheredOrder(Watcher):
    """Finds gathered results that are in rank order, although the sampler distributed samples in a different order."""

    def __init__(self) -> None:
        super().__init__()
        self._sampler: dict[Rank, Any] = {}
        self._parts: dict[Rank, list[Sequence[torch.Tensor]]] = {}  # results of one all_gather each, in rank order
        self._wholes: dict[Rank, list[torch.Tensor]] = {}

    def sampling(self, rank: Rank, sampler: Any) -> None:
        self._sampler[rank] = sampler

    def waited(self, posted: Any) -> None:
        sampler = self._sampler.get(posted.rank)
        if sampler is None or posted.way != "calls" or not posted.what.startswith("all_gather") or not posted.tensors:
            return
        ranks, rows = len(posted.group.ranks), posted.tensors[0].shape[:1]
        if ranks == sampler.num_replicas > 1 and rows and rows[0] == sampler.num_samples:
            outputs = [tensors[0] for tensors in posted.exchange.outputs]
            _keep(self._parts.setdefault(posted.rank, []), outputs)
            if len({tensor.untyped_storage().data_ptr() for tensor in outputs}) == 1:
                _keep(self._wholes.setdefault(posted.rank, []), outputs[0])

    def joined(self, rank: Rank, parts: Sequence[Any], concatenated: Any) -> None:
        """Track a tensor that is made from gathered parts, or from the rows of another tensor."""
        known = self._parts.get(rank, ())
        if len(parts) == 1:
            is_whole = self._is_whole(rank, parts[0])
        else:
            is_whole = any(len(gathered) == len(parts) and all(map(_is_same, gathered, parts)) for gathered in known)
        if is_whole:
            _keep(self._wholes.setdefault(rank, []), concatenated)

    def compared(self, rank: Rank, tensor: Any, other: Any) -> None:
        sampler = self._sampler.get(rank)
        if sampler is None or tensor.shape != other.shape or not tensor.shape:
            return
        if tensor.shape[0] not in (sampler.total_size, len(sampler.dataset)):
            return
        if self._is_whole(rank, tensor) != self._is_whole(rank, other):
            title = (
                "results that were gathered rank by rank are compared with labels in another order: a "
                f"DistributedSampler gives rank r the samples r, r + {sampler.num_replicas}, ..."
            )
            self.find("rank order", title, rank, find_site(), SAME_ORDER)

    def _is_whole(self, rank: Rank, tensor: torch.Tensor) -> bool:
        return any(_is_same(tensor, known) for known in self._wholes.get(rank, ()))


def _is_same(tensor: Any, other: Any) -> bool:
    return bool(tensor.untyped_storage().data_ptr() == other.untyped_storage().data_ptr())


def _keep(known: list[Any], value: Any) -> None:
    known.append(value)
    del known[:-KEPT]
