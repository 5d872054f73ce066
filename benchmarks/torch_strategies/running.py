"""Run a parallelism strategy on one rank, and record torch's calls and the memory that autograd saves."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from realcomm.execution.device_clock import device_clock
from realcomm.launching.group import own_device
from realcomm.launching.status import set_status
from realcomm.strategies.plan import StrategyPlan, batch_of, build
from realcomm.strategies.spread import WHOLE, Spread
from realcomm.strategies.training import KeptBytes, held_bytes

NAMES = {  # operations by the collective that they are, and which of their arguments is the whole buffer
    "c10d::allreduce_": ("all_reduce", 0),
    "c10d::_allgather_base_": ("all_gather", 0),
    "c10d::_reduce_scatter_base_": ("reduce_scatter", 1),
    "c10d::alltoall_base_": ("all_to_all", 0),
    "c10d::broadcast_": ("broadcast", 0),
    "c10d::send": ("send", 0),
    "_c10d_functional::all_reduce": ("all_reduce", 0),
    "_c10d_functional::all_gather_into_tensor": ("all_gather", -1),  # of which it returns the whole
    "_c10d_functional::reduce_scatter_tensor": ("reduce_scatter", 0),
    "_c10d_functional::all_to_all_single": ("all_to_all", 0),
}
PASSED_OVER = (  # each recv is another rank's send
    "c10d::recv_", "c10d::barrier", "_c10d_functional::wait_tensor", "_c10d_functional::_wrap_tensor_autograd",
)  # fmt: skip


class CountedCall(NamedTuple):
    """A call of this rank: the bytes of the whole buffer or message, and the number of ranks."""

    collective: str
    nbytes: int
    ranks: int


class CountedCalls(TorchDispatchMode):
    """Count each call of torch.distributed inside the ``with`` block, also by torch's classes and in backward.

    Raises ValueError for an unknown collective, so that none is missed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[CountedCall] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(each, DTensor) for each in types):
            return NotImplemented  # what it does with its local tensors is what comes here next
        result = func(*args, **(kwargs or {}))
        if "c10d" in func.namespace:
            self._note(func._schema.name, args, kwargs or {}, result)
        return result

    def _note(self, name: str, args: Any, kwargs: dict[str, Any], result: Any) -> None:
        if name in PASSED_OVER:
            return
        if name not in NAMES:
            raise ValueError(f"{name} is a call of torch.distributed that is not counted")
        collective, place = NAMES[name]
        nbytes = sum(each.numel() * each.element_size() for each in _tensors(result if place < 0 else args[place]))
        ranks = 2 if collective == "send" else _ranks([*args, *kwargs.values()])
        self.calls.append(CountedCall(collective, nbytes, ranks))


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _tensors(each)


def _ranks(args: list[Any]) -> int:
    """Return the number of ranks of the group among the arguments, which is an object or a name."""
    for each in args:
        if isinstance(each, torch.ScriptObject):
            try:
                return int(ProcessGroup.unbox(each).size())
            except RuntimeError:  # a reduction's kind, or a timeout
                continue
    name = next(each for each in reversed(args) if isinstance(each, str))
    return int(torch._C._distributed_c10d._resolve_process_group(name).size())  # type: ignore[arg-type]


class KeptActivations(torch.autograd.graph.saved_tensors_hooks):
    """Count the bytes that autograd saves for backward inside the ``with`` block. Parameters do not count."""

    def __init__(self, model: nn.Module) -> None:
        self._apart = {each.untyped_storage()._cdata for each in [*model.parameters(), *model.buffers()]}
        self._holders: dict[int, int] = {}  # of each storage
        self.now = self.most = 0
        super().__init__(self._pack, lambda saved: saved.tensor)

    def _pack(self, tensor: Tensor) -> "_Kept":
        return _Kept(self, tensor)

    def hold(self, tensor: Tensor, by: int) -> None:
        """Change the number of holders of a tensor's storage by one."""
        storage = tensor.untyped_storage()
        if storage._cdata in self._apart:
            return
        before = self._holders.get(storage._cdata, 0)
        self._holders[storage._cdata] = before + by
        self.now += storage.nbytes() * ((before + by > 0) - (before > 0))
        self.most = max(self.most, self.now)


class _Kept:
    """A tensor that autograd saves. Its memory is counted until the object is deleted."""

    def __init__(self, count: KeptActivations, tensor: Tensor) -> None:
        self.count, self.tensor = count, tensor
        count.hold(tensor, 1)

    def __del__(self) -> Any:
        self.count.hold(self.tensor, -1)


COUNTED, COUNTED_DDP = 2, 3  # the step that counts: torch has agreed on the shapes of messages, on DDP's buckets


class CountedStrategy(NamedTuple):
    """The calls and losses of a rank. Losses are of its own samples; in a pipeline, the last stage has them."""

    calls: list[CountedCall]  # of one step
    held: KeptBytes
    activations: int  # the most bytes that autograd kept at once
    losses: list[float]
    step_s: list[float]
    optimizer_s: list[float]  # the part of each step behind backward


def run_strategies(rank: int, world_size: int, plans: Sequence[StrategyPlan]) -> list[CountedStrategy]:
    """Run each plan as one rank of the default group."""
    return [_run_strategy(plan) for plan in plans]


def _run_strategy(plan: StrategyPlan) -> CountedStrategy:
    set_status(f"a step of {plan.parallelism.label}")
    spread = Spread(build(plan), plan.parallelism, plan.recipe, stages=plan.stages, units=plan.units)
    batch, targets = (
        each.chunk(plan.parallelism.data)[spread.place["data"]].to(own_device()) for each in batch_of(plan, 0)
    )
    losses, calls, most = list[float](), list[CountedCall](), 0
    for _ in range(COUNTED_DDP if plan.parallelism.strategy in WHOLE and plan.parallelism.data > 1 else COUNTED):
        count, activations = CountedCalls(), KeptActivations(spread.model)
        spread.optimizer.zero_grad()
        with count:
            with activations:
                loss = spread.forward_and_back(batch, targets)
            spread.optimizer.step()
        losses += [] if loss is None else [loss]
        calls, most = count.calls, activations.most
    memory, seconds, stepping = held_bytes(spread.model, spread.optimizer), list[float](), list[float]()
    for _ in range(plan.steps):
        dist.barrier()
        clock = device_clock(own_device())
        marks = [clock.now()]
        spread.optimizer.zero_grad()
        spread.forward_and_back(batch, targets)
        marks.append(clock.now())
        spread.optimizer.step()
        begin, behind, end = map(clock.seconds, (*marks, clock.now()))
        seconds.append(end - begin)
        stepping.append(end - behind)
    return CountedStrategy(calls, memory, most, losses, seconds, stepping)
