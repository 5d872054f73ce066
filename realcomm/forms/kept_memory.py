"""What a rank keeps: bytes of parameters, gradients and optimizer states, and the most that backward waits for."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor


class KeptBytes(NamedTuple):
    """Bytes of this rank between two steps."""

    parameters: int
    gradients: int
    optimizer: int


def held_bytes(model: nn.Module, optimizer: torch.optim.Optimizer) -> KeptBytes:
    """Return what a rank has of a model and its optimizer, without the numbers that count steps."""
    own = optimizer.optim if isinstance(optimizer, ZeroRedundancyOptimizer) else optimizer
    parameters = [*model.parameters()]
    states = [
        value for kept in own.state.values() for value in kept.values() if isinstance(value, Tensor) and value.dim()
    ]
    return KeptBytes(
        _nbytes(parameters), _nbytes(each.grad for each in parameters if each.grad is not None), _nbytes(states)
    )


def _nbytes(tensors: Iterable[Tensor]) -> int:
    local = (each.to_local() if isinstance(each, DTensor) else each for each in tensors)
    return sum(each.numel() * each.element_size() for each in local)


class KeptActivations(torch.autograd.graph.saved_tensors_hooks):
    """Within the context, count the bytes that autograd keeps until backward, parameters apart; ``most`` at once."""

    def __init__(self, model: nn.Module) -> None:
        self._apart = {each.untyped_storage()._cdata for each in [*model.parameters(), *model.buffers()]}
        self._holders: dict[int, int] = {}  # of each storage
        self.now = self.most = 0
        super().__init__(self._pack, lambda kept: kept.tensor)

    def _pack(self, tensor: Tensor) -> "_Kept":
        return _Kept(self, tensor)

    def hold(self, tensor: Tensor, by: int) -> None:
        """Count one holder of a tensor's storage more or less."""
        storage = tensor.untyped_storage()
        if storage._cdata in self._apart:
            return
        before = self._holders.get(storage._cdata, 0)
        self._holders[storage._cdata] = before + by
        self.now += storage.nbytes() * ((before + by > 0) - (before > 0))
        self.most = max(self.most, self.now)


class _Kept:
    """A tensor that autograd keeps until this ends."""

    def __init__(self, count: KeptActivations, tensor: Tensor) -> None:
        self.count, self.tensor = count, tensor
        count.hold(tensor, 1)

    def __del__(self) -> Any:
        self.count.hold(self.tensor, -1)
