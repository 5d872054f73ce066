"""Computing takes what its flops and bytes say: the same on every machine and in every run."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from virtual.computing.rates import DeviceRates
from virtual.ranks.rank import Rank


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
        """Leave out nothing: data is moved outside of the mode."""

    def counting(self, rank: Rank) -> AbstractContextManager[object]:
        """Return the mode that counts the operations of a rank."""
        return _CountingMode(self, rank)


class _CountingMode(TorchDispatchMode):
    """Counts the flops and bytes of the operations of one rank."""

    def __init__(self, computing: ModelledComputing, rank: Rank) -> None:
        super().__init__()
        self.computing, self.rank = computing, rank

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if not func.is_view:
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
        count: Callable[..., int] | None = flop_registry.get(func._overloadpacket)
        flops = 0 if count is None else count(*args, **kwargs, out_val=found)
        uncharged = self.computing.uncharged
        seconds = self.computing.rates.seconds(flops, nbytes, tensors[0].dtype)
        uncharged[self.rank] = uncharged.get(self.rank, 0.0) + seconds


def _is_tensor(value: object) -> bool:
    return isinstance(value, torch.Tensor)


def _nbytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()
