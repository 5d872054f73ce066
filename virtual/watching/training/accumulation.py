"""Gradient accumulation with ``no_sync`` around backward alone, where DDP has decided in forward to reduce."""

from typing import Any

from virtual.ranks.rank import Rank
from virtual.ranks.sites import find_site
from virtual.ranks.watching import Watcher

WHOLE_STEP = "put forward into the block too: with model.no_sync(): loss = model(batch)...; loss.backward()"


class LateNoSync(Watcher):
    """Compares whether DDP reduces gradients in forward and in backward."""

    def __init__(self) -> None:
        super().__init__()
        self._reducing: dict[Rank, list[Any]] = {}  # modules whose last forward was outside of no_sync

    def forward_begins(self, rank: Rank, ddp: Any) -> None:
        reducing = [one for one in self._reducing.get(rank, ()) if one is not ddp]
        self._reducing[rank] = reducing + [ddp] * bool(ddp.training and ddp.require_backward_grad_sync)

    def backward_begins(self, rank: Rank, roots: tuple[Any, ...]) -> None:
        if any(not one.require_backward_grad_sync for one in self._reducing.pop(rank, ())):
            title = "no_sync() begins after forward, so DDP reduces gradients in every backward"
            self.find("no_sync", title, rank, find_site(), WHOLE_STEP)
