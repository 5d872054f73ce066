"""The operators of c10d: which collective each is, and how many elements its buffer has."""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import torch

REDUCTIONS = ("all_reduce", "reduce", "reduce_scatter")
ASKED = {"distributed_c10d.py": "op", "_functional_collectives.py": "reduceOp"}  # the argument by which, by file

Elements = Callable[[dict[str, Any], int], int]  # of named arguments and the number of ranks


class C10dOperator(NamedTuple):
    """An operator that is a collective or half of a message."""

    verb: str
    elements: Elements
    tensors: str  # the argument whose first tensor says the type


def flatten(tensors: Any) -> Iterable[torch.Tensor]:
    """Yield the tensors in nested lists.

    >>> [len(tensor) for tensor in flatten([[torch.ones(2)], torch.ones(3)])]
    [2, 3]
    """
    if isinstance(tensors, torch.Tensor):
        yield tensors
    else:
        for one in tensors:
            yield from flatten(one)


def _numel(name: str, times_ranks: bool = False) -> Elements:
    """Return what counts the elements of an argument; ``times_ranks`` of one rank's part."""

    def count(named: dict[str, Any], ranks: int) -> int:
        own = sum(tensor.numel() for tensor in flatten(named[name]))
        return own * ranks if times_ranks else own

    return count


def _one(named: dict[str, Any], ranks: int) -> int:
    return 1


OPERATORS = {
    "allreduce_": C10dOperator("all_reduce", _numel("tensors"), "tensors"),
    "allreduce_coalesced_": C10dOperator("all_reduce", _numel("tensors"), "tensors"),
    "broadcast_": C10dOperator("broadcast", _numel("tensors"), "tensors"),
    "reduce_": C10dOperator("reduce", _numel("tensors"), "tensors"),
    "allgather_": C10dOperator("all_gather", _numel("output_tensors"), "input_tensors"),
    "_allgather_base_": C10dOperator("all_gather", _numel("output_tensor"), "input_tensor"),
    "allgather_coalesced_": C10dOperator("all_gather", _numel("output_lists"), "input_list"),
    "allgather_into_tensor_coalesced_": C10dOperator("all_gather", _numel("outputs"), "inputs"),
    "reduce_scatter_": C10dOperator("reduce_scatter", _numel("input_tensors"), "output_tensors"),
    "_reduce_scatter_base_": C10dOperator("reduce_scatter", _numel("input_tensor"), "output_tensor"),
    "reduce_scatter_tensor_coalesced_": C10dOperator("reduce_scatter", _numel("inputs"), "outputs"),
    "gather_": C10dOperator("gather", _numel("input_tensors", True), "input_tensors"),
    "gather_into_tensor_": C10dOperator("gather", _numel("input_tensor", True), "input_tensor"),
    "scatter_": C10dOperator("scatter", _numel("output_tensors", True), "output_tensors"),
    "alltoall_": C10dOperator("all_to_all", _numel("input_tensors"), "input_tensors"),
    "alltoall_base_": C10dOperator("all_to_all", _numel("input"), "input"),
    "barrier": C10dOperator("barrier", _one, "tensor"),
    "monitored_barrier_": C10dOperator("barrier", _one, "tensor"),
    "send": C10dOperator("send", _numel("tensors"), "tensors"),
    "recv_": C10dOperator("recv", _numel("tensors"), "tensors"),
    "recv_any_source_": C10dOperator("recv", _numel("tensors"), "tensors"),
}


def find_operator() -> str:
    """Return by what a call reduces, as the function of torch that is being carried out was asked; else a sum.

    Operators in C++ have it as an object that tells nothing to Python. DDP's Reducer sums what it has divided before.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        argument = ASKED.get(Path(frame.f_code.co_filename).name)
        if argument is not None and argument in frame.f_locals:
            asked = frame.f_locals[argument]
            name = str(getattr(asked, "op", asked)).rpartition(".")[2].lower()
            return {"avg": "mean", "premul_sum": "sum"}.get(name, name)
        frame = frame.f_back
    return "sum"


def names_of(operator: Any) -> list[str]:
    """Return the names of an operator's arguments."""
    return [argument.name for argument in operator._schema.arguments]
