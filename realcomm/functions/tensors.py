"""The collectives as functions on tensors, with the argument names of ``torch.distributed`` and an ``algorithm``.

``algorithm`` is a name of the library (``ringlab list``), ``"my.py:name"``, or an Algorithm. ``op`` is ``"sum"``,
``"mean"``, ``"min"``, ``"max"``, ``"product"`` or a ``dist.ReduceOp``. ``src`` and ``dst`` are ranks of the world, also
in a ``group``; ``group_src`` and ``group_dst``, given instead, are the group's own. Where neither is given it is rank 0
of the world. Tensors need not be contiguous. With ``async_op`` the call returns at once what can be waited for; until
then the tensors are not to be touched. A rank outside the group does nothing. All raise InputError, a ValueError, for
arguments that do not fit.
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist

from collectives.catalogue import Algorithm
from collectives.errors import InputError
from realcomm.functions.arguments import (
    Op,
    check_parts,
    check_splits,
    check_tensor,
    executor_for,
    ranks_of,
    resolved,
    told,
    whole,
    world_root,
)
from realcomm.functions.copying import copy, is_plain, part
from realcomm.functions.handles import GpuWork, Work, start

Group = dist.ProcessGroup | None
Handle = Work | GpuWork | None


def all_reduce(
    tensor: torch.Tensor,
    algorithm: str | Algorithm = "ring",
    op: Op = "sum",
    group: Group = None,
    async_op: bool = False,
) -> Handle:
    """``tensor``, of the same shape on every rank, holds the reduction of all of them."""
    return _in_place("all_reduce", tensor, algorithm, op, None, group, async_op)


def broadcast(
    tensor: torch.Tensor,
    src: int | None = None,
    algorithm: str | Algorithm = "binomial",
    group: Group = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Handle:
    """``tensor``, of the same shape on every rank, holds what it holds on ``src``."""
    root = world_root(group, src, group_src, "src")
    return _in_place("broadcast", tensor, algorithm, "sum", root, group, async_op)


def reduce(
    tensor: torch.Tensor,
    dst: int | None = None,
    algorithm: str | Algorithm = "binomial",
    op: Op = "sum",
    group: Group = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Handle:
    """On ``dst``, ``tensor`` holds the reduction of all; on the others it holds anything."""
    root = world_root(group, dst, group_dst, "dst")
    return _in_place("reduce", tensor, algorithm, op, root, group, async_op)


def all_gather_into_tensor(
    output_tensor: torch.Tensor,
    input_tensor: torch.Tensor,
    algorithm: str | Algorithm = "ring",
    group: Group = None,
    async_op: bool = False,
) -> Handle:
    """``output_tensor``, of ``world_size`` times as many elements, holds every rank's ``input_tensor`` by rank."""
    if (ranks := ranks_of(group)) is None:
        return None
    rank, world_size = ranks
    check_tensor(output_tensor, "output_tensor", group, is_result=True)
    check_tensor(input_tensor, "input_tensor", group, is_result=False)
    check_parts(output_tensor, "output_tensor", input_tensor, "input_tensor", world_size)
    executor = executor_for("all_gather", algorithm, output_tensor, "sum", None, group)

    def action() -> None:
        buffer = output_tensor if is_plain(output_tensor) else executor.buffer
        copy(input_tensor, part(buffer, rank, world_size))
        executor.run(buffer)
        copy(buffer, output_tensor)

    return start(action, whole(group), output_tensor.device, [output_tensor], async_op)


def reduce_scatter_tensor(
    output: torch.Tensor,
    input: torch.Tensor,
    algorithm: str | Algorithm = "ring",
    op: Op = "sum",
    group: Group = None,
    async_op: bool = False,
) -> Handle:
    """``output`` holds part ``rank`` of the reduction of every rank's ``input``, of ``world_size`` times as many."""
    if (ranks := ranks_of(group)) is None:
        return None
    rank, world_size = ranks
    check_tensor(output, "output", group, is_result=True)
    check_tensor(input, "input", group, is_result=False)
    check_parts(input, "input", output, "output", world_size)
    executor = executor_for("reduce_scatter", algorithm, input, op, None, group)

    def action() -> None:
        copy(input, executor.buffer)
        executor.run(executor.buffer)
        copy(part(executor.buffer, rank, world_size), output)

    return start(action, whole(group), input.device, [output], async_op)


def all_to_all_single(
    output: torch.Tensor,
    input: torch.Tensor,
    algorithm: str | Algorithm = "pairwise",
    group: Group = None,
    async_op: bool = False,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
) -> Handle:
    """Part i of ``output`` holds part ``rank`` of rank i's ``input``; both are cut in ``world_size`` equal parts."""
    if (ranks := ranks_of(group)) is None:
        return None
    _, world_size = ranks
    check_tensor(output, "output", group, is_result=True)
    check_tensor(input, "input", group, is_result=False)
    if output.numel() != input.numel() or output.dtype != input.dtype or input.numel() % world_size:
        raise InputError(
            f"all_to_all_single: output is {told(output)} and input is {told(input)}; both need the same dtype and "
            f"number of elements, a multiple of {world_size}"
        )
    check_splits(output_split_sizes, "output_split_sizes", output, world_size)
    check_splits(input_split_sizes, "input_split_sizes", input, world_size)
    executor = executor_for("all_to_all", algorithm, input, "sum", None, group)

    def action() -> None:
        copy(input, executor.buffer)
        executor.run(executor.buffer)
        copy(executor.buffer, output)

    return start(action, whole(group), input.device, [output], async_op)


def barrier(group: Group = None, async_op: bool = False, algorithm: str | Algorithm = "dissemination") -> Handle:
    """Every rank of the group has come here."""
    if (ranks := ranks_of(group)) is None:
        return None
    token, chunks = torch.zeros(1, device=_device(group)), resolved("barrier", algorithm).chunks(ranks[1])
    executor = executor_for("barrier", algorithm, token, "sum", None, group, chunks)

    def action() -> None:
        executor.buffer.zero_()
        executor.run(executor.buffer)

    return start(action, whole(group), token.device, [], async_op)


def _in_place(
    collective: str,
    tensor: torch.Tensor,
    algorithm: str | Algorithm,
    op: Op,
    root: int | None,
    group: Group,
    async_op: bool,
) -> Handle:
    if ranks_of(group) is None:
        return None
    check_tensor(tensor, "tensor", group, is_result=True)
    executor = executor_for(collective, algorithm, tensor, op, root, group)

    def action() -> None:
        buffer = tensor if is_plain(tensor) else executor.buffer
        copy(tensor, buffer)
        executor.run(buffer)
        copy(buffer, tensor)

    return start(action, whole(group), tensor.device, [tensor], async_op)


def _device(group: Group) -> torch.device:
    on_gpu = dist.get_backend(group) == "nccl"
    return torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")
