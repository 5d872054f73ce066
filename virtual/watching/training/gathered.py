"""Predictions that are gathered rank by rank, and compared with labels in the order of the data set."""

from collections.abc import Sequence
from typing import Any

import torch

from virtual.ranks.rank import Rank
from virtual.ranks.sites import find_site
from virtual.ranks.watching import Watcher

KEPT = 16  # tensors of a rank that are known to be in the order of ranks
SAME_ORDER = (
    "gather the labels too, or put what was gathered in order: torch.stack(parts, 1).flatten(0, 1) is that of a "
    "DistributedSampler without shuffle"
)


class GatheredOrder(Watcher):
    """Knows which tensors hold the results of all ranks one after the other, though a sampler dealt samples out."""

    def __init__(self) -> None:
        super().__init__()
        self._sampler: dict[Rank, Any] = {}
        self._parts: dict[Rank, list[Sequence[torch.Tensor]]] = {}  # of one gathering, in the order of ranks
        self._wholes: dict[Rank, list[torch.Tensor]] = {}

    def sampling(self, rank: Rank, sampler: Any) -> None:
        self._sampler[rank] = sampler

    def waited(self, posted: Any) -> None:
        sampler = self._sampler.get(posted.rank)
        if sampler is None or posted.way != "calls" or not posted.what.startswith("all_gather") or not posted.tensors:
            return
        ranks, rows = len(posted.group.ranks), posted.tensors[0].shape[:1]
        if ranks == sampler.num_replicas > 1 and rows and rows[0] == sampler.num_samples:
            taken = [tensors[0] for tensors in posted.exchange.taken]
            _keep(self._parts.setdefault(posted.rank, []), taken)
            if len({one.untyped_storage().data_ptr() for one in taken}) == 1:
                _keep(self._wholes.setdefault(posted.rank, []), taken[0])

    def joined(self, rank: Rank, parts: Sequence[Any], whole: Any) -> None:
        """Follow a tensor that is made of parts, or of one other row by row."""
        known = self._parts.get(rank, ())
        if len(parts) == 1:
            is_whole = self._is_whole(rank, parts[0])
        else:
            is_whole = any(len(one) == len(parts) and all(map(_is_same, one, parts)) for one in known)
        if is_whole:
            _keep(self._wholes.setdefault(rank, []), whole)

    def compared(self, rank: Rank, one: Any, other: Any) -> None:
        sampler = self._sampler.get(rank)
        if sampler is None or one.shape != other.shape or not one.shape:
            return
        if one.shape[0] not in (sampler.total_size, len(sampler.dataset)):
            return
        if self._is_whole(rank, one) != self._is_whole(rank, other):
            title = (
                "results that were gathered rank by rank are compared with what is in another order: a "
                f"DistributedSampler gives rank r the samples r, r + {sampler.num_replicas}, ..."
            )
            self.find("rank order", title, rank, find_site(), SAME_ORDER)

    def _is_whole(self, rank: Rank, tensor: torch.Tensor) -> bool:
        return any(_is_same(tensor, known) for known in self._wholes.get(rank, ()))


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two tensors share their memory."""
    return bool(one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr())


def _keep(known: list[Any], found: Any) -> None:
    known.append(found)
    del known[:-KEPT]
