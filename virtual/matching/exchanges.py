"""Move the data of collectives from each rank's input tensors to the output tensors of other ranks.

Ranks are group ranks. Reductions run in the order of ranks, whichever algorithm determines the time, so every run gives
the same results.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, ClassVar

import torch

Tensors = Sequence[torch.Tensor]
REDUCTIONS: dict[str, Any] = {
    "sum": torch.add,
    "mean": torch.add,  # divided once at the end
    "product": torch.mul,
    "min": torch.minimum,
    "max": torch.maximum,
    "band": torch.bitwise_and,
    "bor": torch.bitwise_or,
    "bxor": torch.bitwise_xor,
}


def reduce_tensors(tensors: Tensors, op: str, factor: Any = None) -> torch.Tensor:
    """Reduce tensors of one shape in order. If ``factor`` is not None, multiply each tensor by it first.

    >>> reduce_tensors([torch.tensor([1, 2]), torch.tensor([3, 4])], "max").tolist()
    [3, 4]
    """
    if factor is not None:
        tensors = [tensor * factor for tensor in tensors]
    dtype = tensors[0].dtype
    if dtype.is_floating_point and dtype.itemsize == 1:  # torch cannot add float8 on the CPU; NCCL can on GPUs
        return reduce_tensors([tensor.float() for tensor in tensors], op).to(dtype)
    if dtype is torch.bool:
        named = {"sum": torch.logical_or, "max": torch.logical_or, "product": torch.logical_and}
        return reduce(named.get(op, REDUCTIONS[op]), tensors)
    combine, total = REDUCTIONS[op], tensors[0].clone()
    for other in tensors[1:]:
        combine(total, other, out=total)
    if total.is_sparse:
        total = total.coalesce()
    if op != "mean":
        return total
    return total.div_(len(tensors)) if total.is_floating_point() or total.is_complex() else total // len(tensors)


def put(target: torch.Tensor, value: torch.Tensor) -> None:
    """Write a value with the same number of elements into a tensor."""
    if not target.numel():
        return  # an empty copy would count as a write to all views of the memory
    destination = target if target.is_sparse else target.detach()  # a detached sparse tensor has indices of its own
    destination.copy_(value if value.shape == target.shape else value.reshape(target.shape))


@dataclass(eq=False)
class Exchange:
    """Holds one rank's input to a collective, and the tensors for its output. This base class is a barrier without
    data.
    """

    collective: ClassVar[str] = "barrier"  # name in ``collectives.spec``; its algorithms determine the time
    from_root: ClassVar[bool] = False  # each rank needs only the root's data
    to_root: ClassVar[bool] = False  # only the root needs the data of other ranks
    me: int = 0
    root: int = 0
    op: str = "sum"
    factor: Any = None
    inputs: Tensors = ()
    outputs: Any = ()

    @property
    def elements(self) -> int:
        """The number of elements in the whole buffer; 0 for a barrier."""
        return 0

    @property
    def reduced(self) -> Tensors:
        """The tensors that the rank contributes to the reduction, or some of their parts."""
        return self.inputs

    @property
    def dtype(self) -> torch.dtype:
        """The type of the elements."""
        return self.inputs[0].dtype if self.inputs else torch.float32

    def keep(self) -> None:
        """Copy the rank's input, because the rank may continue before all other ranks have read it."""
        self.inputs = [tensor.detach().clone() for tensor in self.inputs]

    def take(self, root: "Exchange") -> None:
        """Copy the root's data to this rank, if ``from_root``."""

    @classmethod
    def fits(cls, parts: "Sequence[Any]") -> bool:
        """Return whether each rank sends as many elements as the other ranks expect from it."""
        return True

    @classmethod
    def move(cls, parts: "Sequence[Any]") -> None:
        """Move the data between all ranks; ``parts`` are in rank order."""


def count(tensors: Tensors) -> int:
    """Return the number of elements of all tensors."""
    return sum(tensor.numel() for tensor in tensors)


@dataclass(eq=False)
class AllReduce(Exchange):
    """An all_reduce in place: every rank gets the reduction over all ranks."""

    collective: ClassVar[str] = "all_reduce"

    @property
    def elements(self) -> int:
        return count(self.inputs)

    @classmethod
    def move(cls, parts: Sequence[Exchange]) -> None:
        for which in range(len(parts[0].inputs)):
            columns = [part.inputs[which].detach() for part in parts]
            flat = (
                [column.reshape(-1) for column in columns] if len({column.shape for column in columns}) > 1 else columns
            )
            total = reduce_tensors(flat, parts[0].op, parts[0].factor)
            for part in parts:
                put(part.inputs[which], total)


@dataclass(eq=False)
class Reduce(Exchange):
    """A reduce: the root gets the reduction over all ranks."""

    collective: ClassVar[str] = "reduce"
    to_root: ClassVar[bool] = True

    @property
    def elements(self) -> int:
        return count(self.inputs)

    @classmethod
    def move(cls, parts: Sequence[Exchange]) -> None:
        root = parts[parts[0].root]
        for which, target in enumerate(root.outputs):
            inputs = [part.inputs[which].detach().reshape(target.shape) for part in parts]
            put(target, reduce_tensors(inputs, root.op, root.factor))


@dataclass(eq=False)
class Broadcast(Exchange):
    """A broadcast: every rank gets the root's tensors."""

    collective: ClassVar[str] = "broadcast"
    from_root: ClassVar[bool] = True

    @property
    def elements(self) -> int:
        return count(self.inputs)

    def take(self, root: Exchange) -> None:
        for target, value in zip(self.outputs, root.inputs, strict=True):
            put(target, value.detach())


@dataclass(eq=False)
class AllGather(Exchange):
    """An all_gather: every rank gets the tensors of all ranks; ``outputs[i]`` receives rank i's tensors."""

    collective: ClassVar[str] = "all_gather"
    world_size: int = 1

    @property
    def elements(self) -> int:
        return sum(count(tensors) for tensors in self.outputs)

    @classmethod
    def move(cls, parts: Sequence[Exchange]) -> None:
        for part in parts:
            for targets, other in zip(part.outputs, parts, strict=True):
                for target, value in zip(targets, other.inputs, strict=True):
                    put(target, value.detach())


@dataclass(eq=False)
class ReduceScatter(Exchange):
    """A reduce_scatter: each rank gets the reduction of its parts; ``pieces[k][i]`` is rank i's part of tensor k."""

    collective: ClassVar[str] = "reduce_scatter"
    pieces: Sequence[Tensors] = field(default=())  # for each output tensor, the parts of all ranks

    @property
    def elements(self) -> int:
        return sum(count(parts) for parts in self.pieces)

    @property
    def reduced(self) -> Tensors:
        return [part for parts in self.pieces[:1] for part in parts[:: -(-len(parts) // 4)]]

    @property
    def dtype(self) -> torch.dtype:
        return self.outputs[0].dtype  # type: ignore[no-any-return]

    @classmethod
    def move(cls, parts: "Sequence[ReduceScatter]") -> None:
        results = []
        for part in parts:
            for which, target in enumerate(part.outputs):
                mine = [other.pieces[which][part.me].detach().reshape(target.shape) for other in parts]
                results.append((target, reduce_tensors(mine, part.op, part.factor)))
        for target, value in results:  # last, because an output may be a part of the rank's input
            put(target, value)


@dataclass(eq=False)
class AllToAll(Exchange):
    """An all_to_all: each rank sends one tensor to every rank. For timing, all parts have the same size."""

    collective: ClassVar[str] = "all_to_all"

    @property
    def elements(self) -> int:
        return max(count(self.inputs), count(self.outputs), len(self.inputs))  # a rank without data takes part too

    @classmethod
    def fits(cls, parts: Sequence[Exchange]) -> bool:
        return all(
            target.numel() == other.inputs[part.me].numel() and target.dtype == other.inputs[part.me].dtype
            for part in parts
            for target, other in zip(part.outputs, parts, strict=True)
        )

    @classmethod
    def move(cls, parts: Sequence[Exchange]) -> None:
        results = [
            (target, other.inputs[part.me].detach().clone())
            for part in parts
            for target, other in zip(part.outputs, parts, strict=True)
        ]
        for target, value in results:
            put(target, value)


@dataclass(eq=False)
class Gather(Exchange):
    """A gather: the root gets the tensors of all ranks."""

    collective: ClassVar[str] = "gather"
    to_root: ClassVar[bool] = True
    world_size: int = 1

    @property
    def elements(self) -> int:
        return count(self.inputs) * self.world_size

    @classmethod
    def move(cls, parts: Sequence[Exchange]) -> None:
        for target, other in zip(parts[parts[0].root].outputs, parts, strict=True):
            put(target, other.inputs[0].detach())


@dataclass(eq=False)
class Scatter(Exchange):
    """A scatter: each rank gets its part of the root's tensors."""

    collective: ClassVar[str] = "scatter"
    from_root: ClassVar[bool] = True
    world_size: int = 1

    @property
    def elements(self) -> int:
        return count(self.outputs) * self.world_size

    @property
    def dtype(self) -> torch.dtype:
        return self.outputs[0].dtype  # type: ignore[no-any-return]

    def take(self, root: Exchange) -> None:
        put(self.outputs[0], root.inputs[self.me].detach())
