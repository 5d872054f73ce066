"""Log the steps of each rank's optimizers and hand-written updates, with samples of parameters before and after."""

import gc
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch.utils.weak import WeakIdKeyDictionary

from virtual.matching.samples import MOST, Values, is_plain, take_sample
from virtual.ranks.neutral import Neutral
from virtual.ranks.rank import Rank
from virtual.ranks.sites import CallSite, find_site
from virtual.ranks.watching import Watcher

_RANKS = WeakIdKeyDictionary()  # by parameter; () if it is not sharded


def find_shard_ranks(parameter: torch.Tensor) -> tuple[int, ...]:
    """Return the ranks that hold the shards of an FSDP1 parameter; () for every other parameter.

    The first call for a model looks through all objects of the process.
    """
    if not getattr(parameter, "_fsdp_flattened", False):
        return ()
    if parameter not in _RANKS:
        handle_type = sys.modules["torch.distributed.fsdp._flat_param"].FlatParamHandle
        for handle in [candidate for candidate in gc.get_objects() if type(candidate) is handle_type]:
            group = getattr(handle.process_group, "group", None)
            ranks = group.ranks if group is not None and handle.uses_sharded_strategy else ()
            for tensor in (handle.flat_param, *(handle.flat_param._params or ())):
                _RANKS[tensor] = ranks
    shard_ranks: tuple[int, ...] = _RANKS.get(parameter, ())
    return shard_ranks


EVERY_STEP = 8  # the first steps are checked, and later those whose number is a power of two
KEPT = 4  # steps whose samples are kept


@dataclass
class Step:
    """An optimizer step, with samples of the parameters before and after the step."""

    backwards: int  # backward passes of the rank before this step
    site: CallSite
    rates: tuple[float, ...]  # learning rate of each parameter group
    scale: float | None  # the gradient scaler's scale, if there is a scaler
    before: list[Values | None]
    after: list[Values | None] = field(default_factory=list)


@dataclass(eq=False)
class OptimizerLog:
    """Logs the steps of one rank's optimizer."""

    rank: Rank
    optimizer: Any
    number: int  # index among the rank's optimizers, in order of creation
    steps: dict[int, Step] = field(default_factory=dict)
    count: int = 0  # number of steps
    backwards: int = 0  # backward passes of the rank before the last step
    last: CallSite | None = None  # line of the last step

    @property
    def key(self) -> tuple[int, int]:
        """The job number and the optimizer's index. Ranks that create optimizers in the same order have equal keys."""
        return self.rank.job.number, self.number

    @property
    def unseen(self) -> int:
        """The number of steps before the first logged one."""
        steps: int = getattr(self.optimizer, "unseen_steps", 0)
        return steps

    def first_sample(self, place: int) -> Values | None:
        """Return a parameter's sample before the first step; None for a shard, or if that step was not logged."""
        if hasattr(self.optimizer, "first_samples"):
            sample: Values = self.optimizer.first_samples[place]
            return sample
        return self.steps[0].before[place] if 0 in self.steps else None

    def number_of(self, step: int) -> int:
        """Return the number of a logged step among all steps of the program, from 1."""
        return self.unseen + step + 1

    @property
    def parameters(self) -> list[torch.Tensor]:
        """All parameters, in order."""
        return [parameter for group in self.optimizer.param_groups for parameter in group["params"]]

    @property
    def with_gradients(self) -> list[torch.Tensor]:
        """The parameters with gradients, in order."""
        return [parameter for parameter in self.parameters if parameter.grad is not None and is_plain(parameter.grad)]

    @property
    def rates(self) -> tuple[float, ...]:
        """The learning rate of each group of parameters."""
        return tuple(float(group.get("lr", 0.0)) for group in self.optimizer.param_groups)

    @cached_property
    def sharing(self) -> frozenset[Rank]:
        """The ranks that hold this optimizer's shards; empty unless all its parameters are sharded."""
        shard_ranks = [_find_ranks(parameter) for parameter in self.parameters]
        if not all(shard_ranks):
            return frozenset()
        numbers = {number for ranks in shard_ranks for number in ranks}
        return frozenset(rank for rank in self.rank.job.ranks if rank.number in numbers)

    @property
    def is_sharded(self) -> bool:
        """Whether all parameters are sharded."""
        return bool(self.sharing)

    def is_watched(self, step: int) -> bool:
        """Return whether watchers check a step."""
        return step < EVERY_STEP or step & (step - 1) == 0

    def take(self) -> list[Values | None]:
        """Return samples of all parameters; None for shards and for tensors without data."""
        return [take_sample(parameter) if is_plain(parameter) else None for parameter in self.parameters]


def _find_ranks(parameter: Any) -> tuple[int, ...]:
    mesh = getattr(parameter, "device_mesh", None)
    return find_shard_ranks(parameter) if mesh is None else tuple(map(int, mesh.mesh.flatten()))


class OptimizerLogs(Watcher):
    """Logs the optimizer steps of all ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.logs: dict[Rank, WeakKeyDictionary[Any, OptimizerLog]] = {}
        self.scales: dict[Rank, float] = {}  # scale of the last gradient scaler that stepped

    def of(self, rank: Rank, optimizer: Any) -> OptimizerLog:
        """Return the log of an optimizer."""
        mine = self.logs.setdefault(rank, WeakKeyDictionary())
        if optimizer not in mine:
            mine[optimizer] = OptimizerLog(rank, optimizer, len(mine))
        return mine[optimizer]

    def of_rank(self, rank: Rank) -> Iterator[OptimizerLog]:
        """Yield the logs of a rank's optimizers."""
        yield from self.logs.get(rank, {}).values()

    def are_watched(self, rank: Rank) -> bool:
        """Return whether watchers check the next step of any of the rank's optimizers."""
        return any(log.is_watched(log.count) for log in self.of_rank(rank))

    def made_optimizer(self, rank: Rank, optimizer: Any) -> None:
        self.of(rank, optimizer)

    def backward_ended(self, rank: Rank) -> None:
        rank.backwards += 1

    def scaler_steps(self, rank: Rank, scaler: Any) -> None:
        if scaler.is_enabled():
            self.scales[rank] = float(scaler.get_scale())

    def stepping(self, rank: Rank, optimizer: Any) -> None:
        log = self.of(rank, optimizer)
        log.last = find_site()
        if log.is_watched(log.count):
            log.steps[log.count] = Step(rank.backwards, log.last, log.rates, self.scales.get(rank), log.take())
            log.steps.pop(log.count - KEPT, None)

    def stepped(self, rank: Rank, optimizer: Any) -> None:
        log = self.of(rank, optimizer)
        if log.count in log.steps:
            log.steps[log.count].after = log.take()
        log.count += 1
        log.backwards = rank.backwards
        rank.steps.append(rank.backwards)


MOST_NODES = 20_000  # autograd nodes to visit


class HandOptimizer:
    """Stands in for the optimizer of a program that updates its parameters by hand, as found at the first update.

    ``first_samples`` are samples of the parameters before the first update, which watchers cannot observe.
    """

    unseen_steps = 1

    def __init__(self, parameters: list[torch.Tensor], first_samples: list[Values]) -> None:
        self.param_groups: list[dict[str, Any]] = [{"params": parameters}]
        self.first_samples = first_samples
        self.state: dict[Any, Any] = {}

    def has_changed(self, samples: list[Values]) -> bool:
        """Return whether any parameter differs from its sample in ``samples``."""
        return any(map(_differ, self.param_groups[0]["params"], samples))

    def sample(self) -> list[Values]:
        """Return a sample of each parameter."""
        return [_sample(parameter) for parameter in self.param_groups[0]["params"]]


class HandSteps:
    """Reports the steps of ranks without an optimizer to the watchers."""

    def __init__(self, tell: Callable[..., None]) -> None:
        self.tell = tell
        self._optimizers: dict[Rank, HandOptimizer] = {}
        self._leaves: dict[Rank, list[tuple[torch.Tensor, Values]]] = {}  # leaves of the previous backward pass
        self._sharded: set[Rank] = set()  # ranks with parameters that torch frees after use
        self._begun: dict[Rank, list[Values]] = {}  # values at the backward pass that a step follows

    def begin(self, rank: Rank, roots: tuple[Any, ...]) -> None:
        """Before a backward pass, end the previous step, and detect hand-written updates by comparing samples."""
        self.end(rank)
        if rank in self._optimizers or rank in self._sharded:
            return
        with Neutral():
            leaves = find_leaves(roots)
            known = set(map(id, leaves))
            both = [(leaf, sample) for leaf, sample in self._leaves.get(rank, ()) if id(leaf) in known]
            if any(_differ(leaf, sample) for leaf, sample in both):
                optimizer = HandOptimizer([leaf for leaf, _ in both], [sample for _, sample in both])
                self._optimizers[rank] = optimizer
                self.tell("made_optimizer", optimizer)
            else:
                self._leaves[rank] = [(leaf, _sample(leaf)) for leaf in leaves if _is_there(leaf)]

    def follow(self, rank: Rank) -> None:
        """After a backward pass, report that a step begins."""
        if not all(_is_there(leaf) for leaf, _ in self._leaves.get(rank, ())):
            self._sharded.add(rank)
            self._leaves.pop(rank)
        optimizer = self._optimizers.get(rank)
        if optimizer is not None and rank not in self._begun:
            with Neutral():
                self._begun[rank] = optimizer.sample()
            self.tell("stepping", optimizer)

    def end(self, rank: Rank) -> None:
        """Report the end of a step if the parameters have changed since the step began."""
        optimizer, before = self._optimizers.get(rank), self._begun.get(rank)
        if optimizer is not None and before is not None and optimizer.has_changed(before):
            del self._begun[rank]
            self.tell("stepped", optimizer)


def find_leaves(roots: tuple[Any, ...]) -> list[torch.Tensor]:
    """Return the tensors whose gradients a backward pass from ``roots`` computes, in the same order on all ranks.

    >>> w = torch.ones(2, requires_grad=True)
    >>> [one is w for one in find_leaves(((w * 2).sum(),))]
    [True]
    """
    waiting = [root.grad_fn for root in roots if root.grad_fn is not None]
    seen, leaves = set(waiting), []
    while waiting and len(seen) < MOST_NODES:
        node = waiting.pop()
        variable = getattr(node, "variable", None)
        if variable is not None and is_plain(variable) and not getattr(variable, "_fsdp_flattened", False):
            leaves.append(variable)
        for function, _ in node.next_functions:
            if function is not None and function not in seen:
                seen.add(function)
                waiting.append(function)
    return leaves


def _is_there(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has memory. FSDP frees the memory of parameters after use."""
    return tensor.untyped_storage().nbytes() >= tensor.nbytes


def _sample(tensor: torch.Tensor) -> Values:
    """Sample a copy of a tensor, because torch cannot free memory that numpy has accessed."""
    flat = tensor.detach().reshape(-1)
    return take_sample(flat[:: max(1, -(-flat.numel() // MOST))].clone())


def _differ(tensor: torch.Tensor, sample: Values) -> bool:
    return not np.array_equal(_sample(tensor), sample, equal_nan=True)
