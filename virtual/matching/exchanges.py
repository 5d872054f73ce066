"""Move the data of collectives from each rank's input tensors to the output tensors of other ranks.

Ranks are group ranks. Reductions always run in rank order, so the results do not depend on the algorithm that
determines the time.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

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
    """Return the reduction of tensors of one shape, in order. If ``factor`` is set, it multiplies each tensor first.

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
    """Copy ``value`` into ``target``, which has the same number of elements."""
    if not target.numel():
        return  # an empty copy would count as a write to all views of the memory
    destination = target if target.is_sparse else target.detach()  # a detached sparse tensor has indices of its own
    destination.copy_(value if value.shape == target.shape else value.reshape(target.shape))


@dataclass(eq=False)
class Exchange:
    """One rank's part of a collective: the tensors that it passes as input and output. A barrier has no tensors.

    In an all_gather, ``outputs[i]`` receives the tensors of rank i. In a reduce_scatter, ``pieces[k][i]`` is the part
    of input tensor k for rank i. In a gather, only the root has outputs; in a scatter, only the root has inputs.
    """

    collective: str = "barrier"  # name in ``collectives.spec``; its algorithms determine the time
    me: int = 0
    root: int = 0
    op: str = "sum"
    factor: Any = None
    inputs: Tensors = ()
    outputs: Any = ()
    pieces: Sequence[Tensors] = ()
    world_size: int = 1

    @property
    def from_root(self) -> bool:
        """Whether each rank needs only the root's data."""
        return self.collective in ("broadcast", "scatter")

    @property
    def to_root(self) -> bool:
        """Whether only the root needs the data of other ranks."""
        return self.collective in ("reduce", "gather")

    @property
    def elements(self) -> int:
        """The number of elements in the collective's buffer, assuming parts of equal size. A barrier has 0 elements."""
        match self.collective:
            case "all_gather":
                return sum(map(count, self.outputs))
            case "reduce_scatter":
                return sum(map(count, self.pieces))
            case "all_to_all":  # a rank without data takes part too
                return max(count(self.inputs), count(self.outputs), len(self.inputs))
            case "scatter":
                return count(self.outputs) * self.world_size
            case "gather":
                return count(self.inputs) * self.world_size
        return count(self.inputs)

    @property
    def reduced(self) -> Tensors:
        """The tensors that the rank contributes to a reduction. For a reduce_scatter, at most four are included."""
        if self.collective == "reduce_scatter":
            return [part for parts in self.pieces[:1] for part in parts[:: -(-len(parts) // 4)]]
        return self.inputs

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the elements, or float32 for a collective without tensors."""
        tensors: Tensors = self.outputs if self.collective in ("reduce_scatter", "scatter") else self.inputs
        return tensors[0].dtype if tensors else torch.float32

    def keep(self) -> None:
        """Replace the rank's input by a copy, because the rank may continue before all other ranks have read it."""
        self.inputs = [tensor.detach().clone() for tensor in self.inputs]

    def take(self, root: "Exchange") -> None:
        """Copy the root's data to this rank's outputs, for a broadcast or scatter."""
        values = root.inputs if self.collective == "broadcast" else [root.inputs[self.me]]
        for target, value in zip(self.outputs, values, strict=True):
            put(target, value.detach())


def count(tensors: Tensors) -> int:
    return sum(tensor.numel() for tensor in tensors)


def fits(parts: Sequence[Exchange]) -> bool:
    """Return whether the sizes and dtypes in an all_to_all match. Return True for every other collective."""
    return parts[0].collective != "all_to_all" or all(
        target.numel() == other.inputs[part.me].numel() and target.dtype == other.inputs[part.me].dtype
        for part in parts
        for target, other in zip(part.outputs, parts, strict=True)
    )


def move(parts: Sequence[Exchange]) -> None:
    """Move the data of a collective between all ranks. ``parts`` has an entry for each rank, in rank order."""
    for target, value in list(MOVES[parts[0].collective](parts)):  # all values first: outputs may be parts of inputs
        put(target, value)


Moves = Iterator[tuple[torch.Tensor, torch.Tensor]]  # target and value


def _all_reduce(parts: Sequence[Exchange]) -> Moves:
    for which in range(len(parts[0].inputs)):
        columns = [part.inputs[which].detach() for part in parts]
        if len({column.shape for column in columns}) > 1:
            columns = [column.reshape(-1) for column in columns]
        total = reduce_tensors(columns, parts[0].op, parts[0].factor)
        yield from ((part.inputs[which], total) for part in parts)


def _reduce(parts: Sequence[Exchange]) -> Moves:
    root = parts[parts[0].root]
    for which, target in enumerate(root.outputs):
        inputs = [part.inputs[which].detach().reshape(target.shape) for part in parts]
        yield target, reduce_tensors(inputs, root.op, root.factor)


def _all_gather(parts: Sequence[Exchange]) -> Moves:
    for part in parts:
        for targets, other in zip(part.outputs, parts, strict=True):
            yield from ((target, value.detach()) for target, value in zip(targets, other.inputs, strict=True))


def _reduce_scatter(parts: Sequence[Exchange]) -> Moves:
    for part in parts:
        for which, target in enumerate(part.outputs):
            mine = [other.pieces[which][part.me].detach().reshape(target.shape) for other in parts]
            yield target, reduce_tensors(mine, part.op, part.factor)


def _all_to_all(parts: Sequence[Exchange]) -> Moves:
    for part in parts:
        for target, other in zip(part.outputs, parts, strict=True):
            yield target, other.inputs[part.me].detach().clone()


def _gather(parts: Sequence[Exchange]) -> Moves:
    for target, other in zip(parts[parts[0].root].outputs, parts, strict=True):
        yield target, other.inputs[0].detach()


MOVES: dict[str, Callable[[Sequence[Exchange]], Moves]] = {
    "barrier": lambda parts: iter(()),
    "all_reduce": _all_reduce,
    "reduce": _reduce,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
    "gather": _gather,
}
