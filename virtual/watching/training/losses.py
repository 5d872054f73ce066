"""Check how losses and the gradients of shards are scaled, and find losses that are reduced before backward."""

import math
from typing import Any, NamedTuple

import numpy as np
from torch.autograd.function import BackwardCFunction

from virtual.matching.samples import Values, find_ratio, is_close, take_sample
from virtual.ranks.rank import Rank
from virtual.ranks.sites import find_site
from virtual.ranks.watching import Watcher
from virtual.watching.training.logs import OptimizerLog, OptimizerLogs, find_shard_ranks

DEEP = 8  # autograd functions that are examined, starting at the loss
BY_HAND = (
    "call backward on each rank's own loss and average the gradients, or use DDP; for the log, all_reduce a detached "
    "copy (dist.nn.functional.all_reduce supports autograd)"
)
MEANS = ("MeanBackward0", "MeanBackward1")
MEAN, SUM = 1, 2  # values of ``_saved_reduction`` in autograd's loss functions


class LossScale(NamedTuple):
    """The scale of a loss: the loss is ``factor`` times a mean or a sum over samples."""

    factor: float
    counts: tuple[int, ...] = (1,)  # possible divisors that turn the sum into a mean
    is_summed: bool = False  # by a loss function with reduction="sum"

    @property
    def is_bare_sum(self) -> bool:
        return self.factor == 1.0 and self.counts != (1,)


def read_loss_scale(roots: tuple[Any, ...]) -> LossScale | None:
    """Return the scale of a loss relative to a mean or a sum over samples, or None if the scale is unknown.

    >>> import torch
    >>> x = torch.ones(3, 2, requires_grad=True)
    >>> read_loss_scale((x.square().mean() / 4,))
    LossScale(factor=0.25, counts=(1,), is_summed=False)
    >>> read_loss_scale((torch.nn.functional.mse_loss(x, x.detach(), reduction="sum") / 6,)).counts
    (6, 3)
    """
    reduction = _find_reduction(roots)
    if reduction is None:
        return None
    function, factor, is_mean = reduction
    if is_mean:
        return LossScale(factor)
    counts = _read_counts(function)
    return LossScale(factor, counts, getattr(function, "_saved_reduction", None) == SUM) if counts else None


def _find_reduction(roots: tuple[Any, ...]) -> tuple[Any, float, bool] | None:
    """Return the autograd function that averages or sums a loss, the factor of its result, and whether it averages."""
    if len(roots) != 1:
        return None
    function, factor = roots[0].grad_fn, 1.0
    for _ in range(DEEP):
        if function is None:
            return None
        name = type(function).__name__
        reduction = getattr(function, "_saved_reduction", None)
        if name in MEANS or reduction == MEAN:
            return function, factor, True
        if name == "SumBackward0" or reduction == SUM:
            return function, factor, False
        scale = _read_scale(name, function)
        if scale is None:
            return None
        factor *= scale
        function = function.next_functions[0][0]
    return None


def _read_counts(function: Any) -> tuple[int, ...]:
    try:
        sizes = (
            function._saved_self_sym_sizes if hasattr(function, "_saved_self_sym_sizes") else function._saved_self.shape
        )
    except (AttributeError, RuntimeError):
        return ()
    return tuple(dict.fromkeys([math.prod(sizes), *sizes[:1]]))


def _read_scale(name: str, function: Any) -> float | None:
    if name not in ("DivBackward0", "MulBackward0"):
        return None
    try:
        constant = float(function._saved_other)
    except (AttributeError, TypeError, ValueError, RuntimeError):
        return None
    return constant if name == "MulBackward0" else 1.0 / constant


class ReducedLosses(Watcher):
    """Finds losses that ranks all_reduce in place before backward. Autograd ignores such a reduction.

    Inputs of a custom ``torch.autograd.Function`` are exempt, because its backward defines their gradients.
    """

    def __init__(self) -> None:
        super().__init__()
        self._reduced: dict[Rank, list[Any]] = {}

    def complete(self, collective: Any) -> None:
        for call in collective.calls.values():
            tensors = call.tensors if call.is_programs and call.exchange.collective == "all_reduce" else ()
            self._reduced.setdefault(call.rank, []).extend(
                tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None
            )

    def backward_begins(self, rank: Rank, roots: tuple[Any, ...]) -> None:
        reduced = self._reduced.pop(rank, [])
        if not reduced:
            return
        functions = [root.grad_fn for root in roots]
        for _ in range(DEEP):
            if any(function is other for function in functions for other in reduced):
                title = "backward starts from a loss that was all_reduced in place, which autograd ignores"
                self.find("reduced loss", title, rank, find_site(), BY_HAND)
                return
            inner = [
                function
                for function in functions
                if function is not None and not isinstance(function, BackwardCFunction)
            ]
            functions = [function for outer in inner for function, _ in outer.next_functions[:2]]


GLOBAL = (
    "clip by the norm over all shards: call torch.nn.utils.clip_grad_norm_ on the DTensors, or all_reduce the sum of "
    "squares before taking the root"
)
OF_FSDP_1 = "call clip_grad_norm_ of the FSDP module, which computes the norm over all shards"


class ShardFactors(Watcher):
    """Finds ranks that scale the gradients of their shards by different factors between backward and step."""

    def __init__(self, logs: OptimizerLogs) -> None:
        super().__init__()
        self.logs = logs
        self._computed: dict[Rank, dict[OptimizerLog, Values]] = {}
        self._told_of: set[tuple[int, int]] = set()

    def backward_ended(self, rank: Rank) -> None:
        sharded = [log for log in self.logs.of_rank(rank) if log.is_sharded and log.is_watched(log.count)]
        self._computed[rank] = {log: _sample(log) for log in sharded}

    def stepping(self, rank: Rank, optimizer: Any) -> None:
        log = self.logs.of(rank, optimizer)
        before = self._computed.get(rank, {}).get(log)
        if before is None or log.key in self._told_of:
            return
        factors = self.gather((log.key, log.count), log, find_ratio(_sample(log), before), len(log.sharing)) or {}
        known = {log: factor for log, factor in factors.items() if factor is not None}
        if known and not is_close(min(known.values()), max(known.values())):
            self._told_of.add(log.key)
            title = (
                f"before step {log.count + 1}, {{ranks}} multiply the gradients of their shards by different factors"
            )
            places = [
                (log.rank, f"multiplies its gradients by {factor:.4g}", log.last) for log, factor in known.items()
            ]
            advice = OF_FSDP_1 if find_shard_ranks(log.parameters[0]) else GLOBAL
            self.compare("gradient scale mismatch", title, places, advice)


def _sample(log: OptimizerLog) -> Values:
    gradients = [parameter.grad for parameter in log.parameters if parameter.grad is not None]
    local = [gradient.to_local() if hasattr(gradient, "to_local") else gradient for gradient in gradients]
    return np.concatenate([np.zeros(0), *(take_sample(gradient, 8) for gradient in local if gradient.numel())])
