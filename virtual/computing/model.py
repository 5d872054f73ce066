"""Computing takes what its flops and bytes say: the same on every machine and in every run."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass_type
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop, sdpa_flop

from virtual.computing.rates import DeviceRates
from virtual.ranks.rank import Rank

UNCOUNTED = ("prim", "c10d", "_c10d_functional")  # namespaces of attributes, and of what communication itself takes
NO_WORK = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_unsafe_view",
           "_local_scalar_dense")  # fmt: skip

OF_CPU: dict[Any, Callable[..., int]] = {  # attention's kernels of this machine, which torch does not count
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: sdpa_flop,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: sdpa_backward_flop,
}
FLOPS = flop_registry | OF_CPU


class ModelledComputing:
    """What ranks compute takes the time that the flops and bytes of each operation take at a device's rates."""

    def __init__(self, rates: DeviceRates) -> None:
        self.rates = rates
        self.uncharged: dict[Rank, float] = {}

    def charge(self, rank: Rank) -> None:
        """Put what the rank's operations took on its clock."""
        seconds = self.uncharged.get(rank, 0.0)
        if seconds:
            rank.spend(seconds)
            self.uncharged[rank] = 0.0

    def forget(self, rank: Rank) -> None:
        """Leave out what was counted since the last charge."""
        self.uncharged[rank] = 0.0

    def counting(self, rank: Rank) -> AbstractContextManager[object]:
        """Return the mode that counts the operations of a rank."""
        return _CountingMode(self, rank)


class _CountingMode(TorchDispatchMode):
    """Counts the flops and bytes of the operations of one rank."""

    def __init__(self, computing: ModelledComputing, rank: Rank) -> None:
        super().__init__()
        self.computing, self.rank = computing, rank

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(map(is_traceable_wrapper_subclass_type, types)):
            return NotImplemented  # of a DTensor what its shard takes counts, which comes here afterwards
        found = func(*args, **(kwargs or {}))
        if _does_work(func):
            self._count(func, args, kwargs or {}, found)
        return found

    def _count(self, func: Any, args: Any, kwargs: dict[str, Any], found: Any) -> None:
        tensors = [one for one in args if isinstance(one, torch.Tensor)]
        tensors += [one for given in args if isinstance(given, list | tuple) for one in given if _is_tensor(one)]
        if not tensors or any(one.device.type == "meta" for one in tensors):
            return
        nbytes = sum(map(_nbytes, tensors))
        results = found if isinstance(found, list | tuple) else (found,)
        nbytes += sum(_nbytes(one) for one in results if _is_tensor(one) and not any(one is own for own in tensors))
        count: Callable[..., int] | None = FLOPS.get(func._overloadpacket)
        flops: float = 0 if count is None else count(*args, **kwargs, out_val=found)
        is_attention = "attention" in func.__name__
        if is_attention and any(one is True for one in (*args, *kwargs.values())):
            flops /= 2  # causal: its only flag; half of the scores are left out
        uncharged = self.computing.uncharged
        seconds = self.computing.rates.seconds(flops, nbytes, tensors[0].dtype, is_attention)
        uncharged[self.rank] = uncharged.get(self.rank, 0.0) + seconds


@lru_cache(maxsize=4096)
def _does_work(func: Any) -> bool:
    """Return whether an operator computes or moves something."""
    name = func._schema.name.partition("::")[2]
    return not func.is_view and func.namespace not in UNCOUNTED and name not in NO_WORK


def _is_tensor(value: object) -> bool:
    return isinstance(value, torch.Tensor)


def _nbytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()
