"""Check hand-written reductions: how often each sum that is built from messages contains each rank's data.

Each tensor that is sent, received or added is a sum of contributions. A contribution is a rank's own tensor, identified
by a sample of its values. A tensor is recognized by its address or, if it is a copy, by its values.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from virtual.matching.samples import is_constant, is_plain, take_sample
from virtual.ranks.finding import format_ranks
from virtual.ranks.rank import Rank, RankJob
from virtual.ranks.sites import NOWHERE, CallSite, find_site
from virtual.ranks.watching import Watcher

MOST_SUMS = 500  # programs with more sums on a rank are not checked
MOST_ELEMENTS = 1 << 22  # larger tensors are not followed
MOST_PARTS = 2  # sums with more contributions per rank are not followed
MOST_KEPT = 1024  # elements; larger tensors are not kept alive
CHECK_STEPS = (
    "compare your all_reduce with dist.all_reduce on values that differ by rank: the data of each rank must reach "
    "every rank exactly once"
)

Contribution = tuple[int, bytes]  # a rank, and a sample of its tensor
Parts = Counter[Contribution]


@dataclass(eq=False)
class OwnSum:
    """A tensor that is a sum of ranks' data. ``parts`` counts how often the sum contains each rank's contribution."""

    tensor: torch.Tensor | None  # kept alive if it is small, so that its memory is not reused
    values: bytes
    parts: Parts
    ranks: frozenset[int]  # members of the group whose messages carried its contributions
    site: CallSite
    is_last: bool = True  # it was not added to another sum and not sent

    @property
    def is_there(self) -> bool:
        return self.tensor is not None and take_sample(self.tensor).tobytes() == self.values

    @property
    def holds(self) -> frozenset[int]:
        return frozenset(rank for rank, _ in self.parts)

    @property
    def is_whole(self) -> bool:
        return self.holds == self.ranks

    @property
    def is_partial(self) -> bool:
        """Whether the sum contains the data of several ranks, but not of all."""
        return 1 < len(self.holds) < len(self.ranks)

    @property
    def doubled(self) -> int | None:
        """The only rank whose data a complete sum contains twice, or None if there is not exactly one such rank."""
        if not self.is_whole:
            return None
        more = [contribution for contribution, count in self.parts.items() if count > 1]
        return more[0][0] if len(more) == 1 and self.parts[more[0]] == 2 else None


class OwnReductions(Watcher):
    def __init__(self) -> None:
        super().__init__()
        self._sums: dict[Rank, dict[tuple[int, int], OwnSum]] = {}  # by address and elements
        self._by_values: dict[Rank, dict[bytes, OwnSum]] = {}
        self._adding: dict[Rank, tuple[Parts, frozenset[int]]] = {}
        self._mixed: dict[Rank, CallSite] = {}  # lines that use parts which are summed over different ranks

    # -- messages

    def posted(self, posted: Any) -> None:
        if posted.way != "sends" or not posted.is_programs or not _is_followed(posted.tensors[0]):
            return
        if not self._has_too_many(posted.rank):
            known, posted.parts = self._look(posted.rank, posted.tensors[0])
            if known is not None:
                known.is_last = False

    def arrived(self, sender: Any, receiver: Any) -> None:
        if sender.parts is not None:
            ranks = frozenset(sender.group.ranks)
            self._note(receiver.rank, receiver.tensors[0], sender.parts, ranks, receiver.site, is_last=False)

    # -- additions

    def adding(self, rank: Rank, tensors: Sequence[Any]) -> None:
        """Before the addition of two tensors, find the contributions to the sum if a tensor comes from messages."""
        self._adding.pop(rank, None)
        if rank not in self._sums or not all(map(_is_followed, tensors)):
            return
        looked = [self._look(rank, tensor) for tensor in tensors]
        known = [own_sum for own_sum, _ in looked if own_sum is not None]
        for own_sum in known:
            own_sum.is_last = False
        parts = [counts for _, counts in looked if counts is not None]
        if not known or len(parts) < len(looked):
            return
        total, ranks = sum(parts, Counter()), known[0].ranks
        if len(total) <= MOST_PARTS * len(ranks):
            self._adding[rank] = (total, ranks)

    def added(self, rank: Rank, total: Any) -> None:
        addition = self._adding.pop(rank, None)
        if addition is not None:
            self._note(rank, total, *addition, find_site(), is_last=True)

    def put_together(self, rank: Rank, tensors: Sequence[Any]) -> None:
        if rank in self._sums:
            self._look_for_partial(rank, [self._look(rank, tensor)[0] for tensor in filter(_is_followed, tensors)])

    def used(self, rank: Rank, tensor: Any) -> None:
        if rank in self._sums and _is_followed(tensor):
            begin, end = tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes
            inside = [own_sum for (address, _), own_sum in self._sums[rank].items() if begin <= address < end]
            self._look_for_partial(rank, [own_sum for own_sum in inside if own_sum.is_there])

    def _look_for_partial(self, rank: Rank, parts: Sequence[OwnSum | None]) -> None:
        known = [part for part in parts if part is not None]
        if any(part.is_whole for part in known) and any(part.is_partial for part in known):
            self._mixed[rank] = find_site()

    # -- results

    def ended(self, job: RankJob) -> None:
        if any(map(self._has_too_many, job.ranks)):
            return
        mixed = [rank for rank in job.ranks if rank in self._mixed]
        for rank in mixed:
            title = "{ranks} used a result in which only some parts are summed over all ranks"
            self.find("wrong all_reduce", title, rank, self._mixed[rank], CHECK_STEPS)
        if mixed:
            return
        sums = {rank: [*self._sums.get(rank, {}).values()] for rank in job.ranks}
        full_ranks = [rank for rank, mine in sums.items() if any(own_sum.is_whole for own_sum in mine)]
        last = {rank: [own_sum for own_sum in mine if own_sum.is_last] for rank, mine in sums.items()}
        partial = {rank: [own_sum for own_sum in mine if own_sum.is_partial] for rank, mine in last.items()}
        partial = {rank: mine for rank, mine in partial.items() if mine and rank not in full_ranks}
        if len(full_ranks) > 1 and partial:
            title = (
                f"{format_ranks(rank.number for rank in full_ranks)} built the sum over all ranks from messages, "
                "but {ranks} summed the data of only some"
            )
            self._compare_sums(title, partial, lambda own_sum: f"sum of {format_ranks(own_sum.holds)}")
        doubled = {rank: [own_sum for own_sum in mine if own_sum.doubled is not None] for rank, mine in last.items()}
        doubled = {rank: mine for rank, mine in doubled.items() if mine}
        if len(doubled) > 1:
            title = "the sums that {ranks} built from messages contain the data of one rank twice"
            self._compare_sums(title, doubled, lambda own_sum: f"sum with twice the data of rank {own_sum.doubled}")

    def _compare_sums(self, title: str, sums: dict[Rank, list[OwnSum]], describe: Callable[[OwnSum], str]) -> None:
        places = [(rank, describe(own_sums[-1]), own_sums[-1].site) for rank, own_sums in sums.items()]
        self.compare("wrong all_reduce", title, places, CHECK_STEPS)

    # -- known sums

    def _has_too_many(self, rank: Rank) -> bool:
        return self._times[(rank,)] > MOST_SUMS

    def _look(self, rank: Rank, tensor: torch.Tensor) -> tuple[OwnSum | None, Parts | None]:
        """Return the known sum that a tensor holds, and the contributions to the tensor. Each is None if unknown."""
        sample = take_sample(tensor)
        values, sums = sample.tobytes(), self._sums.get(rank)
        if sums is not None:
            known = sums.get((tensor.data_ptr(), tensor.numel()))
            if known is not None and known.values == values:
                return known, known.parts
            if not is_constant(sample):
                known = self._by_values[rank].get(values)
                if known is not None:
                    return known, known.parts
            elif not sample[0]:
                return None, Counter()
            elif any(own_sum.values == values for own_sum in self._sums[rank].values()):
                return None, None  # it may be a copy of a sum
        return None, Counter({(rank.number, values): 1}) if sample.any() else Counter()

    def _note(
        self, rank: Rank, tensor: Any, parts: Parts, ranks: frozenset[int], site: CallSite, is_last: bool
    ) -> None:
        if not _is_followed(tensor) or site == NOWHERE:
            return
        self._mixed.pop(rank, None)  # the reduction continues
        self.count(rank)
        if self._has_too_many(rank):
            self._sums.pop(rank, None)
            self._by_values.pop(rank, None)
            return
        mine = self._sums.setdefault(rank, {})
        by_values = self._by_values.setdefault(rank, {})
        contents = tensor.detach() if tensor.numel() <= MOST_KEPT else None
        total = OwnSum(contents, take_sample(tensor).tobytes(), parts, ranks, site, is_last)
        place = (tensor.data_ptr(), tensor.numel())
        before = mine.pop(place, None)
        if before is not None:
            before.tensor = None
        mine[place] = by_values[total.values] = total


def _is_followed(tensor: Any) -> bool:
    return is_plain(tensor) and 0 < tensor.numel() <= MOST_ELEMENTS
