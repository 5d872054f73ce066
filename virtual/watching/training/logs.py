"""Log the steps of each rank's optimizers, with samples of parameters before and after."""

import gc
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.utils.weak import WeakIdKeyDictionary

from virtual.matching.samples import Values, is_plain, take_sample
from virtual.ranks.rank import Rank
from virtual.ranks.sites import CallSite, find_site
from virtual.ranks.watching import Watcher

_RANKS = WeakIdKeyDictionary()  # by parameter; () if it is not sharded


def find_shard_ranks(parameter: torch.Tensor) -> tuple[int, ...]:
    """Return the ranks that hold shards of an FSDP1 parameter, or () if the parameter is not sharded by FSDP1."""
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
    rates: tuple[float, ...]  # learning rate of each parameter group
    scale: float | None  # the gradient scaler's scale, if there is a scaler
    before: list[Values | None]
    after: list[Values | None] = field(default_factory=list)


@dataclass(eq=False)
class OptimizerLog:
    rank: Rank
    optimizer: Any
    number: int  # index among the rank's optimizers, in order of creation
    steps: dict[int, Step] = field(default_factory=dict)
    count: int = 0  # number of steps
    last: CallSite | None = None  # line of the last step

    @property
    def key(self) -> tuple[int, int]:
        """The job number and the optimizer's index. Ranks that create optimizers in the same order have equal keys."""
        return self.rank.job.number, self.number

    def first_sample(self, place: int) -> Values | None:
        """Return a parameter's sample before the first step. Return None for a shard or if that step was not logged."""
        return self.steps[0].before[place] if 0 in self.steps else None

    @property
    def parameters(self) -> list[torch.Tensor]:
        return [parameter for group in self.optimizer.param_groups for parameter in group["params"]]

    @property
    def with_gradients(self) -> list[torch.Tensor]:
        return [parameter for parameter in self.parameters if parameter.grad is not None and is_plain(parameter.grad)]

    @property
    def rates(self) -> tuple[float, ...]:
        return tuple(float(group.get("lr", 0.0)) for group in self.optimizer.param_groups)

    @cached_property
    def sharing(self) -> frozenset[Rank]:
        """The ranks that hold shards of this optimizer's parameters, or no ranks if a parameter is not sharded."""
        shard_ranks = [_find_ranks(parameter) for parameter in self.parameters]
        if not all(shard_ranks):
            return frozenset()
        numbers = {number for ranks in shard_ranks for number in ranks}
        return frozenset(rank for rank in self.rank.job.ranks if rank.number in numbers)

    @property
    def is_sharded(self) -> bool:
        return bool(self.sharing)

    def is_watched(self, step: int) -> bool:
        return step < EVERY_STEP or step & (step - 1) == 0

    def take(self) -> list[Values | None]:
        return [take_sample(parameter) if is_plain(parameter) else None for parameter in self.parameters]


def _find_ranks(parameter: Any) -> tuple[int, ...]:
    mesh = getattr(parameter, "device_mesh", None)
    return find_shard_ranks(parameter) if mesh is None else tuple(map(int, mesh.mesh.flatten()))


class OptimizerLogs(Watcher):
    def __init__(self) -> None:
        super().__init__()
        self.logs: dict[Rank, WeakKeyDictionary[Any, OptimizerLog]] = {}
        self.scales: dict[Rank, float] = {}  # scale of the last gradient scaler that stepped

    def of(self, rank: Rank, optimizer: Any) -> OptimizerLog:
        mine = self.logs.setdefault(rank, WeakKeyDictionary())
        if optimizer not in mine:
            mine[optimizer] = OptimizerLog(rank, optimizer, len(mine))
        return mine[optimizer]

    def of_rank(self, rank: Rank) -> Iterator[OptimizerLog]:
        yield from self.logs.get(rank, {}).values()

    def are_watched(self, rank: Rank) -> bool:
        """Return whether the next step of any of the rank's optimizers will be checked."""
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
            log.steps[log.count] = Step(rank.backwards, log.rates, self.scales.get(rank), log.take())
            log.steps.pop(log.count - KEPT, None)

    def stepped(self, rank: Rank, optimizer: Any) -> None:
        log = self.of(rank, optimizer)
        if log.count in log.steps:
            log.steps[log.count].after = log.take()
        log.count += 1
        rank.steps.append(rank.backwards)
