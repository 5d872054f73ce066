"""Parameters that a module has under DDP and that DDP does not reduce: replaced, added or unfrozen after wrapping."""

from typing import Any
from weakref import WeakKeyDictionary

import torch

from virtual.diagnosis.ddp_parameters import WRAP_LATER, find_unreduced, name_unreduced
from virtual.ranks.rank import Rank, RankJob
from virtual.ranks.sites import CallSite, find_site
from virtual.ranks.watching import Watcher
from virtual.watching.training.bonds import Bonds

WATCHED_FORWARDS = 8  # of each module


class UnreducedParameters(Watcher):
    """Compares a module's parameters in forward with those that it had when DDP wrapped it."""

    def __init__(self, bonds: Bonds) -> None:
        super().__init__()
        self.bonds = bonds
        self._known: WeakKeyDictionary[Any, list[torch.Tensor]] = WeakKeyDictionary()
        self._forwards: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._unreduced: dict[Rank, tuple[Any, list[str], CallSite]] = {}

    def wrapped(self, rank: Rank, ddp: Any) -> None:
        self._known[ddp] = [one for one in ddp.module.parameters() if one.requires_grad]

    def forward_begins(self, rank: Rank, ddp: Any) -> None:
        count = self._forwards.get(ddp, 0)
        self._forwards[ddp] = count + 1
        if count < WATCHED_FORWARDS and ddp.training and ddp in self._known:
            names = find_unreduced(ddp, self._known[ddp])
            if names and rank not in self._unreduced:
                self._unreduced[rank] = (ddp, names, find_site())
                parameters = dict(ddp.module.named_parameters())
                self.bonds.missed.update({parameters[name]: None for name in names})

    def ended(self, job: RankJob) -> None:
        for rank in job.ranks:
            ddp, names, site = self._unreduced.get(rank, (None, [], None))
            parameters = {} if ddp is None else dict(ddp.module.named_parameters())
            names = [name for name in names if name in parameters and self.bonds.of(rank, parameters[name]) is None]
            if names:
                title = f"DDP does not know {name_unreduced(names)} of the module, so ranks train it apart"
                self.find("missed by DDP", title, rank, site, WRAP_LATER)
