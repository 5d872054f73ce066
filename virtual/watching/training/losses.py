"""What backward begins with: a mean over samples or another number, and whether ranks have reduced it before."""

from typing import Any

from virtual.ranks.rank import Rank
from virtual.ranks.sites import find_site
from virtual.ranks.watching import Watcher

DEEP = 8  # functions that are looked through, from the loss on
BY_HAND = (
    "call backward on each rank's own loss and average the gradients, or let DDP do it; all_reduce a detached copy for "
    "the log (dist.nn.functional.all_reduce is one that can be differentiated)"
)
MEANS = ("MeanBackward0", "MeanBackward1")
WITH_REDUCTION = 1  # as autograd's functions of losses name the mean


def read_loss_factor(roots: tuple[Any, ...]) -> float | None:
    """Return by what a loss is a multiple of a mean over samples; None where it is none, or not known.

    >>> import torch
    >>> x = torch.ones(3, requires_grad=True)
    >>> read_loss_factor((x.square().mean() / 4,)), read_loss_factor((x.sum(),))
    (0.25, None)
    """
    if len(roots) != 1:
        return None
    function, factor = roots[0].grad_fn, 1.0
    for _ in range(DEEP):
        if function is None:
            return None
        name = type(function).__name__
        if name in MEANS or getattr(function, "_saved_reduction", None) == WITH_REDUCTION:
            return factor
        scale = _read_scale(name, function)
        if scale is None:
            return None
        factor *= scale
        function = function.next_functions[0][0]
    return None


def _read_scale(name: str, function: Any) -> float | None:
    """Return the constant that a function of autograd multiplies by."""
    if name not in ("DivBackward0", "MulBackward0"):
        return None
    try:
        constant = float(function._saved_other)
    except (AttributeError, TypeError, ValueError, RuntimeError):
        return None
    return constant if name == "MulBackward0" else 1.0 / constant


class ReducedLosses(Watcher):
    """Knows the tensors of autograd that ranks have reduced in place, which autograd does not know of."""

    def __init__(self) -> None:
        super().__init__()
        self._reduced: dict[Rank, list[Any]] = {}

    def complete(self, collective: Any) -> None:
        for call in collective.calls.values():
            tensors = call.tensors if call.is_programs and call.exchange.collective == "all_reduce" else ()
            self._reduced.setdefault(call.rank, []).extend(one.grad_fn for one in tensors if one.grad_fn is not None)

    def backward_begins(self, rank: Rank, roots: tuple[Any, ...]) -> None:
        reduced = self._reduced.pop(rank, [])
        if not reduced:
            return
        functions = [root.grad_fn for root in roots]
        for _ in range(DEEP):
            if any(one is other for one in functions for other in reduced):
                title = "backward begins with a loss that was all_reduced in place, which autograd does not see"
                self.find("backward of a reduced loss", title, rank, find_site(), BY_HAND)
                return
            functions = [inner for one in functions if one is not None for inner, _ in one.next_functions[:2]]
