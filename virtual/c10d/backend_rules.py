"""Reject the dtypes, sizes, layouts and operators that gloo or NCCL would reject before communicating.

Each method raises torch's exception, with the first line of torch's message.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

Tensors = Sequence[torch.Tensor]
NAMED: Any = dist.ReduceOp.RedOpType  # torch declares no types for its members
BITWISE = (NAMED.BAND, NAMED.BOR, NAMED.BXOR)
INTEGERS = (torch.uint8, torch.int8, torch.int32, torch.int64)
EVERYWHERE = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.bool, *INTEGERS)
FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)
SCALED = (torch.float16, torch.float32, torch.bfloat16, torch.float64)  # dtypes that NCCL's PREMUL_SUM supports
CHECKED = "Check failed: "
IN_CPP = {torch.float32: "Float", torch.float64: "Double", torch.float16: "Half", torch.bfloat16: "BFloat16",
          torch.uint8: "Byte", torch.int8: "Char", torch.int16: "Short", torch.int32: "Int", torch.int64: "Long",
          torch.bool: "Bool", torch.complex32: "ComplexHalf", torch.complex64: "ComplexFloat",
          torch.complex128: "ComplexDouble", torch.uint16: "UInt16", torch.uint32: "UInt32",
          torch.uint64: "UInt64"}  # fmt: skip


def in_cpp(dtype: torch.dtype) -> str:
    """Return a dtype's name as in torch's C++ messages, such as "Short" or "Float8_e5m2"."""
    return IN_CPP.get(dtype, str(dtype).removeprefix("torch.").capitalize())


def in_brackets(sizes: Sequence[int]) -> str:
    """Return a tensor's sizes as in torch's C++ messages, such as "(2, 3)"."""
    return f"({', '.join(map(str, sizes))})"


class GlooRules:
    """Checks arguments as ``ProcessGroupGloo`` does. Only sends and receives require contiguous tensors."""

    title = "Gloo"

    def check_reduction(self, verb: str, tensors: Tensors, op: Any) -> None:
        """Reject dtypes and operators that reductions do not support. ``verb`` names the call in error messages."""
        for tensor in tensors:
            if tensor.is_sparse:
                _check_sparse(verb, op)
                continue
            if tensor.is_complex() and op not in (NAMED.SUM, NAMED.AVG, NAMED.PREMUL_SUM):
                raise RuntimeError(f"{verb} does not support {op.name} on complex tensors")
            self.check_moved(verb, [tensor])
            if op == NAMED.PREMUL_SUM:
                raise RuntimeError("Cannot use ReduceOp.PREMUL_SUM with Gloo")
            if op in BITWISE and tensor.is_floating_point():
                raise RuntimeError(f"Cannot use ReduceOp.{op.name} with non-integral dtype")
            if op == NAMED.AVG and not (tensor.is_floating_point() or tensor.is_complex()):
                name = in_cpp(tensor.dtype)
                raise RuntimeError(f"result type Float can't be cast to the desired output type {name}")

    def check_moved(self, verb: str, tensors: Tensors) -> None:
        """Reject tensors whose dtype or layout the backend cannot copy between ranks."""
        for tensor in tensors:
            if tensor.is_sparse:
                raise NotImplementedError(f"Could not run 'c10d::{verb}' with arguments from the 'SparseCPU' backend.")
            if tensor.dtype not in EVERYWHERE and (verb == "gather" or not tensor.is_complex()):
                raise RuntimeError("Invalid scalar type")

    def check_message(self, verb: str, tensor: torch.Tensor) -> None:
        """Reject a tensor that cannot be sent or received. ``verb`` is "send", "recv" or "recvAnysource"."""
        if tensor.is_sparse:
            raise NotImplementedError(f"Could not run 'c10d::{verb}' with arguments from the 'SparseCPU' backend.")
        if not tensor.is_contiguous():
            raise RuntimeError("input tensor has to be contiguous")

    def check_whole(self, verb: str, concatenated: torch.Tensor, part: torch.Tensor, size: int) -> None:
        """Check that ``concatenated`` has the right dtype and size to hold ``size`` tensors like ``part``."""
        if verb == "all_gather":
            _check_lengths(
                "allgather", list(concatenated.chunk(size)) if concatenated.dim() else [concatenated], part, size
            )
            return
        if concatenated.dtype != part.dtype:
            raise RuntimeError(
                f"{CHECKED}outputTensors[i].dtype() == inputTensors[i].dtype() ({part.dtype} vs. {concatenated.dtype})."
            )
        rows, mine = (tensor.shape[0] if tensor.dim() else 1 for tensor in (concatenated, part))
        if mine * size != rows:
            raise RuntimeError(f"{CHECKED}outputShape[0] * worldSize == inputShape[0] ({mine * size} vs. {rows}).")

    def check_parts(self, verb: str, parts: Tensors, mine: torch.Tensor, size: int) -> None:
        """Check that ``parts`` has one tensor per rank, and that each fits this rank's tensor ``mine``."""
        if verb == "reduce_scatter":
            if len(parts) != size:
                raise RuntimeError("invalid input tensor list size, must be world size")
            for part in parts:
                if part.shape != mine.shape:
                    shapes = f"{' '.join(map(str, mine.shape))} vs. {' '.join(map(str, part.shape))}"
                    raise RuntimeError(f"{CHECKED}outputs[0].sizes().vec() == inputs[0][i].sizes().vec() ({shapes}).")
            return
        if verb in ("gather", "scatter") and len(parts) != size:
            way = "output" if verb == "gather" else "input"
            right = f"{way.capitalize()} list size should be {size}, same as size of the process group."
            raise RuntimeError(f"ProcessGroupGloo::{verb}: Incorrect {way} list size {len(parts)}. {right}")
        _check_lengths(verb, parts, mine, size)


def _check_lengths(verb: str, parts: Tensors, mine: torch.Tensor, size: int) -> None:
    if len(parts) != size:
        lengths = f"expected length {size}, got {len(parts)}"
        raise RuntimeError(f"ProcessGroupGloo::{verb}: invalid output tensor list at index 0 ({lengths})")
    for at, part in enumerate(parts):
        if part.dtype != mine.dtype:
            types = f"expected {in_cpp(mine.dtype)}, got {in_cpp(part.dtype)}"
            raise RuntimeError(f"ProcessGroupGloo::{verb}: invalid tensor type at index {at} ({types})")
        if part.shape != mine.shape:
            shapes = f"expected {in_brackets(mine.shape)}, got {in_brackets(part.shape)}"
            raise RuntimeError(f"ProcessGroupGloo::{verb}: invalid tensor size at index {at} ({shapes})")


def _check_sparse(verb: str, op: Any) -> None:
    if verb != "all_reduce":
        raise NotImplementedError(f"Could not run 'c10d::{verb}' with arguments from the 'SparseCPU' backend.")
    if op != NAMED.SUM:
        raise RuntimeError(
            "ProcessGroupGloo::allreduce: unsupported reduction operation (allreduce of sparse tensors only works with "
            "ReduceOp.SUM)"
        )


class NcclRules:
    """Checks arguments as ``ProcessGroupNCCL`` does, which accepts tensors of different shapes in a list."""

    title = "NCCL"

    def check_reduction(self, verb: str, tensors: Tensors, op: Any) -> None:
        self.check_moved(verb, tensors)
        for tensor in tensors:
            if tensor.dtype in FLOAT8[2:]:
                raise TypeError("Unsupported Float8 type for NCCL reduction")
            if tensor.is_complex() and op not in (NAMED.SUM, NAMED.AVG, NAMED.PREMUL_SUM):
                raise RuntimeError(f"{verb} does not support {op.name} on complex tensors")
            if op in BITWISE:
                raise ValueError(f"Cannot use ReduceOp.{op.name} with NCCL")
            if op == NAMED.AVG and tensor.dtype is torch.bool:
                raise TypeError("Cannot use ReduceOp.AVG with bool inputs")
            if op == NAMED.PREMUL_SUM and tensor.dtype not in SCALED:
                raise TypeError("PreMulSum Data type must be half, float, bfloat16 or double")

    def check_moved(self, verb: str, tensors: Tensors) -> None:
        for tensor in tensors:
            if tensor.is_sparse:
                raise ValueError("Tensors must be CUDA and dense")
            if not tensor.is_contiguous() and not tensor.is_contiguous(memory_format=torch.channels_last):
                raise ValueError("Tensors must be contiguous")
            if tensor.dtype not in EVERYWHERE + FLOAT8 and not tensor.is_complex():
                name = in_cpp(tensor.dtype)
                raise TypeError(f"Input tensor data type is not supported for NCCL process group: {name}")

    def check_message(self, verb: str, tensor: torch.Tensor) -> None:
        if verb == "recvAnysource":
            raise RuntimeError("Backend nccl does not support recvAnysource")
        self.check_moved(verb, [tensor])

    def check_whole(self, verb: str, concatenated: torch.Tensor, part: torch.Tensor, size: int) -> None:
        self.check_moved(verb, [concatenated, part])
        gathers = verb == "all_gather"
        if concatenated.dtype != part.dtype:
            ways = ("output", "input") if gathers else ("input", "output")
            raise TypeError(f"{ways[0]} tensor must have the same type as {ways[1]} tensor")
        if concatenated.numel() != part.numel() * size:
            raise ValueError(
                "output tensor size must be equal to world_size times input tensor size"
                if gathers
                else "input tensor must be the same size as output size times world size"
            )

    def check_parts(self, verb: str, parts: Tensors, mine: torch.Tensor, size: int) -> None:
        self.check_moved(verb, [mine])
        if len(parts) != size:
            raise ValueError(
                "Tensor list input to scatter/gather must match number of collective participants but got "
                f"{len(parts)} inputs with world_size {size}"
            )


BackendRules = GlooRules | NcclRules
RULES: dict[str, BackendRules] = {"gloo": GlooRules(), "nccl": NcclRules()}
