"""Calls of the functions on tensors as values, and the results of torch.distributed's own calls on the same input.

Data are small integers, so results are exact in any order of ranks and in every dtype.
"""

import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from real_functions import FUNCTIONS

import realcomm
from collectives.call import part_slice
from collectives.catalogue import library
from realcomm.execution.own_collective import REDUCE

OF_GLOO = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int32, torch.int64,
]  # fmt: skip
REDUCED = [*OF_GLOO, torch.complex64]
MOVED = [*REDUCED, torch.bool, torch.uint16, torch.float8_e4m3fn]
COLLECTIVES = {
    "all_gather_into_tensor": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter",
    "all_to_all_single": "all_to_all",
}
ROOTS = {"broadcast": "src", "scatter": "src", "reduce": "dst", "gather": "dst"}
REDUCING = "all_reduce", "reduce", "reduce_scatter", "reduce_scatter_tensor"
SHAPES: list[tuple[int, ...]] = [(), (0,), (1,), (7,), (2, 3), (3, 0), (4, 1, 3), (33,), (5, 41)]
LAYOUTS = "plain", "transposed", "every second", "inside", "parameter", "conjugate"
MODES: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "usual": nullcontext,
    "inference": torch.inference_mode,
    "no_grad": torch.no_grad,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
}


class Call(NamedTuple):
    name: str
    shape: tuple[int, ...] = (4,)
    dtype: torch.dtype = torch.float32
    op: str = "sum"
    root: int = 0  # a rank of the group
    algorithm: str | None = None  # None: the default
    layouts: tuple[str, str] = ("plain", "plain")  # of the first tensors, and of the others
    made_in: str = "usual"  # the mode in which tensors are made
    mode: str = "usual"  # the mode in which the function is called
    seed: int = 0

    @property
    def reduces(self) -> bool:
        return self.name in REDUCING


def draw_call(draw: random.Random, world_size: int) -> Call:
    name = draw.choice(FUNCTIONS)
    collective = COLLECTIVES.get(name, name)
    known = [algorithm.label for algorithm in library().values() if algorithm.spec.name == collective]
    dtype = draw.choice(REDUCED if name in REDUCING else MOVED)
    ops = ["sum", "product"] if dtype.is_complex else ["sum", "sum", "min", "max", "product"]
    ops += ["mean"] if dtype.is_floating_point or dtype.is_complex else []
    return Call(
        name,
        draw.choice(SHAPES),
        dtype,
        draw.choice(ops),
        draw.randrange(world_size),
        draw.choice([None, *known]),
        (draw.choice(LAYOUTS), draw.choice(LAYOUTS)),
        draw.choice([*MODES]),
        draw.choice([*MODES]),
        draw.randrange(1 << 30),
    )


@dataclass
class Built:
    call: Call
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    named: dict[str, Any]
    inputs: Sequence[torch.Tensor]  # which keep their content
    results: Sequence[torch.Tensor]  # which the call defines on this rank

    def make(self, group: Any, async_op: bool = False) -> Any:
        with MODES[self.call.mode]():
            return self.function(*self.arguments, **self.named, group=group, async_op=async_op)


def build(call: Call, rank: int, p: int) -> Built:
    """Return the tensors of a rank of a group of ``p`` for realcomm's function."""
    named: dict[str, Any] = {} if call.algorithm is None else {"algorithm": call.algorithm}
    with MODES[call.made_in]():
        return _build(call, rank, p, realcomm, lay_out, named | ({"op": call.op} if call.reduces else {}))


def torchs_results(call: Call, rank: int, p: int, group: Any) -> list[torch.Tensor]:
    """Return the results of torch.distributed's own call, flattened as by ``flat``."""
    if call.reduces and call.dtype.is_complex:  # gloo has sums of them only
        return _complex_results(call, rank, p)
    torchs = _build(
        call, rank, p, dist, lambda values, _: flat(values), {"op": REDUCE[call.op]} if call.reduces else {}
    )
    torchs.make(group)
    return [result / p if call.reduces and call.op == "mean" else result for result in torchs.results]


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """Return the elements in order, in a dtype that gloo supports: floats for complex numbers, else bytes."""
    elements = tensor.detach().resolve_conj().clone(memory_format=torch.contiguous_format).reshape(-1)
    if tensor.dtype.is_complex:
        return torch.view_as_real(elements).reshape(-1)
    return elements if tensor.dtype in OF_GLOO else elements.view(torch.uint8)


def _complex_results(call: Call, rank: int, p: int) -> list[torch.Tensor]:
    every = [_build(call, number, p, realcomm, lambda values, _: values.reshape(-1), {}) for number in range(p)]
    inputs = torch.stack([torch.cat([*(number.inputs or number.arguments[:1])]) for number in every])
    reduced = inputs.prod(0) if call.op == "product" else inputs.sum(0) / (p if call.op == "mean" else 1)
    part = slice(None) if call.name in ("all_reduce", "reduce") else part_slice(rank, len(reduced), p)
    return [flat(reduced[part])] if every[rank].results else []


def _build(
    call: Call, rank: int, p: int, module: Any, lay: Callable[[torch.Tensor, str], torch.Tensor], named: dict[str, Any]
) -> Built:
    numbers, name, is_root = torch.Generator().manual_seed(call.seed + rank), call.name, rank == call.root

    def one(which: int) -> torch.Tensor:
        return lay(_values(call.shape, call.dtype, numbers), call.layouts[which])

    def whole(which: int) -> torch.Tensor:
        shape = (p * call.shape[0], *call.shape[1:]) if call.shape else (p,)
        return lay(_values(shape, call.dtype, numbers), call.layouts[which])

    def several(which: int) -> list[torch.Tensor]:
        return [one(which) for _ in range(p)]

    function = getattr(module, name)
    if name in ROOTS:
        named = {**named, f"group_{ROOTS[name]}": call.root}
    arguments: tuple[Any, ...]
    if name == "barrier":
        return Built(call, function, (), named, [], [])
    if name in ("all_reduce", "broadcast", "reduce"):
        arguments = (one(0),)
        return Built(call, function, arguments, named, [], arguments if name != "reduce" or is_root else [])
    if name == "all_to_all" and module is dist:  # gloo has none for lists
        sent, taken = torch.cat(several(0)), torch.cat(several(1))
        results = [taken[part_slice(number, len(taken), p)] for number in range(p)]
        return Built(call, dist.all_to_all_single, (taken, sent), named, [sent], results)
    given_as, taken_as = {
        "all_gather_into_tensor": (one, whole),
        "reduce_scatter_tensor": (whole, one),
        "all_to_all_single": (whole, whole),
        "all_gather": (one, several),
        "gather": (one, several),
        "reduce_scatter": (several, one),
        "scatter": (several, one),
        "all_to_all": (several, several),
    }[name]
    inputs: Any = given_as(0) if name != "scatter" or is_root else None
    outputs: Any = taken_as(1) if name != "gather" or is_root else None
    arguments = (inputs, outputs) if name == "gather" else (outputs, inputs)
    return Built(call, function, arguments, named, _listed(inputs), _listed(outputs))


def _listed(tensors: list[torch.Tensor] | torch.Tensor | None) -> list[torch.Tensor]:
    return [tensors] if isinstance(tensors, torch.Tensor) else tensors or []


def _values(shape: tuple[int, ...], dtype: torch.dtype, numbers: torch.Generator) -> torch.Tensor:
    """Return numbers from 0 to 2, whose product of five is exact; complex ones have a different imaginary part."""
    drawn = torch.randint(0, 3, shape, generator=numbers, dtype=torch.uint8)
    return (drawn - 1j * (drawn.float() - 1)).to(dtype) if dtype.is_complex else drawn.to(dtype)


def lay_out(values: torch.Tensor, layout: str) -> torch.Tensor:
    """Return a tensor of these values with some memory layout; its gaps contain ones."""
    dtype = values.dtype
    if layout == "transposed" and values.dim() >= 2:
        return values.transpose(0, -1).contiguous().transpose(0, -1)
    if layout in ("every second", "inside") and values.dim():
        step = 2 if layout == "every second" else 1
        length = step * values.shape[-1]
        memory = torch.ones((*values.shape[:-1], length + 3), dtype=torch.uint8).to(dtype)
        return memory[..., 1 : 1 + length : step].copy_(values)
    if layout == "conjugate" and values.is_complex():
        return values.conj().resolve_conj().conj()
    if layout == "parameter" and dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        return torch.nn.Parameter(values)
    return values


def has_ones_around(tensor: torch.Tensor) -> bool:
    """Return whether the gaps of a ``lay_out`` tensor still contain ones."""
    length = tensor.untyped_storage().nbytes() // tensor.itemsize
    is_gap = torch.ones(length, dtype=torch.bool)
    is_gap.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).fill_(value=False)
    memory = tensor.detach().as_strided((length,), (1,), 0)
    return bool((memory[is_gap].float() == 1).all()) if not tensor.is_complex() else bool((memory[is_gap] == 1).all())
