"""Find misuse of DistributedDataParallel: a late ``no_sync``, and parameters that it does not reduce."""

from typing import Any
from weakref import WeakKeyDictionary

import torch

from virtual.diagnosis.exits import WRAP_LATER, find_unreduced, name_unreduced
from virtual.ranks.rank import Rank, RankJob
from virtual.ranks.sites import CallSite, find_site
from virtual.ranks.watching import Watcher
from virtual.watching.training.bonds import Bonds

WHOLE_STEP = "move forward into the block: with model.no_sync(): loss = model(batch)...; loss.backward()"


class LateNoSync(Watcher):
    """Finds a no_sync context that is entered between forward and backward."""

    def __init__(self) -> None:
        super().__init__()
        self._reducing: dict[Rank, list[Any]] = {}  # modules whose last forward was outside of no_sync

    def forward_begins(self, rank: Rank, ddp: Any) -> None:
        reducing = [module for module in self._reducing.get(rank, ()) if module is not ddp]
        self._reducing[rank] = reducing + [ddp] * bool(ddp.training and ddp.require_backward_grad_sync)

    def backward_begins(self, rank: Rank, roots: tuple[Any, ...]) -> None:
        if any(not module.require_backward_grad_sync for module in self._reducing.pop(rank, ())):
            title = "no_sync() starts after forward, so DDP still reduces gradients in every backward"
            self.find("late no_sync", title, rank, find_site(), WHOLE_STEP)


WATCHED_FORWARDS = 8  # forwards that are checked per module


class UnreducedParameters(Watcher):
    """Compares a module's parameters in forward with its parameters when DDP wrapped it."""

    def __init__(self, bonds: Bonds) -> None:
        super().__init__()
        self.bonds = bonds
        self._known: WeakKeyDictionary[Any, list[torch.Tensor]] = WeakKeyDictionary()
        self._forwards: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._unreduced: dict[Rank, tuple[Any, list[str], CallSite]] = {}

    def wrapped(self, rank: Rank, ddp: Any) -> None:
        self._known[ddp] = [parameter for parameter in ddp.module.parameters() if parameter.requires_grad]

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
                title = f"DDP does not average {name_unreduced(names)}, which changed after the module was wrapped"
                self.find("not in DDP", title, rank, site, WRAP_LATER)
