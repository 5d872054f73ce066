"""Ranks that draw the same random numbers where each should have its own: of dropout, under DDP."""

from typing import Any

import torch

from virtual.ranks.rank import Rank
from virtual.ranks.sites import find_site
from virtual.ranks.watching import Watcher

OWN_SEED = "after the module is made, seed each rank with a number of its own: torch.manual_seed(seed + rank)"
TWICE = 2  # forward passes with equal states


class DropoutSeeds(Watcher):
    """Compares the states of torch's generator where modules with dropout are called."""

    def __init__(self) -> None:
        super().__init__()
        self._calls: dict[Rank, int] = {}
        self._met: dict[tuple[Any, int], dict[Rank, bytes]] = {}
        self._equal: dict[Any, int] = {}

    def forward_begins(self, rank: Rank, ddp: Any) -> None:
        group = getattr(ddp.process_group, "group", None)
        drops = any(isinstance(one, torch.nn.modules.dropout._DropoutNd) and one.p > 0 for one in ddp.modules())
        if group is None or not ddp.training or not drops:
            return
        number = self._calls.get(rank, 0)
        self._calls[rank] = number + 1
        met = self._met.setdefault((group, number), {})
        met[rank] = torch.get_rng_state().numpy().tobytes()
        if len(met) == len(group.ranks) > 1:
            if len(set(self._met.pop((group, number)).values())) == 1:
                self._equal[group] = self._equal.get(group, 0) + 1
            if self._equal.get(group) == TWICE:
                for other in met:
                    title = "{ranks} draw the same random numbers, so dropout leaves out the same units on all"
                    self.find("equal random numbers", title, other, find_site(), OWN_SEED)
