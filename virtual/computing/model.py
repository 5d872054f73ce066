"""Model compute times from the FLOPs and bytes of each operation. The times do not depend on this machine."""

from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass_type
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop, sdpa_flop

from planner.gpus import Gpu
from virtual.matching.samples import find_tensors
from virtual.ranks.rank import Launches, Rank
from virtual.ranks.sites import is_called_within
from virtual.ranks.world import Computing

KERNEL_S = 2e-6  # minimum time of an operation
HALF = (torch.float16, torch.bfloat16)
UNCOUNTED = ("prim", "c10d", "_c10d_functional")  # namespaces of attributes and of communication
NO_WORK = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_unsafe_view",
           "_local_scalar_dense")  # fmt: skip

OF_OPTIMIZERS = str(Path(torch.optim.__file__).parent)
READING = {
    getattr(torch.ops.aten, name)
    for name in ("_local_scalar_dense", "nonzero", "masked_select", "_unique2", "unique_consecutive", "equal")
}  # operators whose result the host waits for

OF_CPU: dict[Any, Callable[..., int]] = {  # attention kernels of CPUs, which torch does not count
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: sdpa_flop,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: sdpa_backward_flop,
}
FLOPS = flop_registry | OF_CPU


class ModelledComputing(Computing):
    """Models the time of each operation from its FLOPs and bytes, at the rates of a device.

    ``shares`` are the fractions of the GPU's peak that operations reach in matrix products, attention and memory
    bandwidth. ``launch_s`` is the host time in seconds to launch an operation. If it is None, the host waits for each
    operation.
    """

    def __init__(
        self, gpu: Gpu, shares: tuple[float, float, float] = (1.0, 1.0, 1.0), launch_s: float | None = None
    ) -> None:
        self.gpu, self.shares, self.launch_s = gpu, shares, launch_s
        self._launched: defaultdict[Rank, Launches] = defaultdict(Launches)

    def seconds(self, flops: float, nbytes: float, dtype: torch.dtype, is_attention: bool) -> float:
        """Return an operation's time in seconds: the larger of FLOP time and memory time, but at least ``KERNEL_S``.

        32-bit floats run at the TF32 rate.
        """
        product, attention, memory = self.shares
        reached = product * (self.gpu.matrix_16 if dtype in HALF else self.gpu.matrix_32)
        if is_attention:
            reached = min(reached, attention * self.gpu.matrix_16)
        return max(flops / reached, nbytes / (memory * self.gpu.memory_rate), KERNEL_S)

    def add(self, rank: Rank, seconds: float) -> None:
        self._launched[rank].add(self.launch_s or 0.0, seconds)

    def read(self, rank: Rank) -> None:
        """Let the host wait for the device before it reads a value, except for the step counters of optimizers."""
        if self.launch_s is not None and not is_called_within(OF_OPTIMIZERS):
            self.charge(rank)
            rank.meet_device()

    def charge(self, rank: Rank) -> None:
        if self._launched[rank].device:
            done = self._launched[rank].take()
            if self.launch_s is None:
                rank.spend(done.device)
            else:
                rank.launch(done)

    def forget(self, rank: Rank) -> None:
        self._launched[rank].take()

    def counting(self, rank: Rank) -> AbstractContextManager[object]:
        if self.launch_s is not None:
            rank.launches = Launches()
        return _CountingMode(self, rank)


class _CountingMode(TorchDispatchMode):
    def __init__(self, computing: ModelledComputing, rank: Rank) -> None:
        super().__init__()
        self.computing, self.rank = computing, rank

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # otherwise torch imports its compiler, and each operator takes 2 ms

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if types and any(map(is_traceable_wrapper_subclass_type, types)):
            return NotImplemented  # a DTensor's local operators are counted instead
        result = func(*args, **(kwargs or {}))
        operator = _describe(func)
        if operator.does_work:
            self._count(operator, args, kwargs or {}, result)
        if operator.is_reading:
            self.computing.read(self.rank)
        return result

    def _count(self, operator: "_Operator", args: Any, kwargs: dict[str, Any], result: Any) -> None:
        inputs = find_tensors(args)
        if not inputs or any(tensor.is_meta for tensor in inputs):
            return
        known = set(map(id, inputs))
        moved = inputs + [tensor for tensor in find_tensors((result,)) if id(tensor) not in known]
        nbytes = sum([tensor.numel() * tensor.element_size() for tensor in moved])
        flops: float = 0 if operator.flops is None else _count_flops(operator.flops, args, kwargs, result)
        if operator.is_attention and any(argument is True for argument in (*args, *kwargs.values())):
            flops /= 2  # the only flag is ``is_causal``, which halves the scores
        seconds = self.computing.seconds(flops, nbytes, inputs[0].dtype, operator.is_attention)
        self.computing.add(self.rank, seconds)


class _Operator(NamedTuple):
    does_work: bool  # it computes or moves something
    is_reading: bool
    is_attention: bool
    flops: Callable[..., int] | None


@lru_cache(maxsize=4096)
def _describe(func: Any) -> _Operator:
    packet, name = func._overloadpacket, func._schema.name.partition("::")[2]
    does_work = not func.is_view and func.namespace not in UNCOUNTED and name not in NO_WORK
    return _Operator(does_work, packet in READING, "attention" in func.__name__, FLOPS.get(packet))


def _count_flops(count: Callable[..., int], args: Any, kwargs: dict[str, Any], result: Any) -> int:
    """Return an operator's FLOPs, cached by shapes because torch's formula is slower than a small matmul."""
    if not hasattr(count, "__wrapped__"):  # it takes values rather than shapes
        return count(*args, **kwargs, out_val=result)
    named = tuple((name, _replace_by_shapes(value)) for name, value in kwargs.items())
    return _count_by_shapes(count, _replace_by_shapes(args), named, _replace_by_shapes(result))


@lru_cache(maxsize=4096)
def _count_by_shapes(count: Callable[..., int], args: Any, named: tuple[tuple[str, Any], ...], out: Any) -> int:
    return count(*args, **dict(named), out_val=out)


def _replace_by_shapes(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.shape
    return tuple(map(_replace_by_shapes, value)) if isinstance(value, list | tuple) else value
