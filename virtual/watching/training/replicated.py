"""Tensors that DTensor takes to be equal on all ranks of a dimension of a mesh, as nobody compares them."""

from typing import Any

from virtual.matching.samples import Values, are_unlike, is_plain, take_sample
from virtual.ranks.finding import FindingPlace, ProgramFinding, format_ranks
from virtual.ranks.rank import Rank
from virtual.ranks.sites import find_site
from virtual.ranks.watching import Watcher

MOST = 64  # tensors of a group that are compared
ALIKE = (
    "feed all ranks of a tensor-parallel group the same batch (seed and sample by the data-parallel rank, "
    "mesh['dp'].get_local_rank()), and let dropout on what they share draw the same numbers on all of them"
)


class ReplicatedTensors(Watcher):
    """Compares what the ranks of a mesh's dimension give as replicated."""

    def __init__(self) -> None:
        super().__init__()
        self._counts: dict[tuple[Rank, Any], int] = {}
        self._met: dict[tuple[Any, int], dict[Rank, Values]] = {}
        self._told_of: set[Any] = set()

    def replicated(self, rank: Rank, tensor: Any, mesh: Any, placements: Any) -> None:
        if not is_plain(tensor) or mesh.get_coordinate() is None:
            return
        for dimension, placement in enumerate(placements):
            if placement.is_replicate() and mesh.size(dimension) > 1:
                self._meet(rank, tensor, mesh.get_group(dimension).group)

    def _meet(self, rank: Rank, tensor: Any, group: Any) -> None:
        number = self._counts.get((rank, group), 0)
        self._counts[rank, group] = number + 1
        if number >= MOST or group in self._told_of:
            return
        met = self._met.setdefault((group, number), {})
        met[rank] = take_sample(tensor)
        if len(met) == len(group.ranks):
            values = list(self._met.pop((group, number)).values())
            if any(are_unlike(values[0], other, 0.0) for other in values[1:]):
                self._told_of.add(group)
                where = FindingPlace(tuple(sorted(one.number for one in met)), "", find_site())
                title = (
                    f"a tensor of {list(tensor.shape)} is not the same on {format_ranks(where.ranks)}, "
                    "whose layers take it to be replicated"
                )
                self.tell(rank.job, ProgramFinding("unlike inputs", title, (where,), ALIKE))
