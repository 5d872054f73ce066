"""The collectives that take a list of tensors, one for each rank.

The tensors of a list are alike: all of one shape and type. Other arguments, and what is
raised, are as in ``realcomm.functions.tensors``.
"""

from collections.abc import Sequence

import torch

from collectives.catalogue import Algorithm
from realcomm.functions.arguments import (
    Op,
    check_list,
    check_tensor,
    executor_for,
    first_of,
    group_root,
    ranks_of,
    whole,
    world_root,
)
from realcomm.functions.copying import copy, part
from realcomm.functions.handles import start
from realcomm.functions.tensors import Group, Handle

Tensors = Sequence[torch.Tensor]


def all_gather(
    tensor_list: Tensors,
    tensor: torch.Tensor,
    algorithm: str | Algorithm = "ring",
    group: Group = None,
    async_op: bool = False,
) -> Handle:
    """``tensor_list`` holds every rank's ``tensor`` by rank."""
    if (ranks := ranks_of(group)) is None:
        return None
    rank, world_size = ranks
    check_tensor(tensor, "tensor", group, is_result=False)
    parts = check_list(tensor_list, "tensor_list", tensor, world_size, "", group, is_result=True)
    executor = executor_for("all_gather", algorithm, tensor, "sum", None, group, world_size)

    def action() -> None:
        copy(tensor, part(executor.buffer, rank, world_size))
        executor.run(executor.buffer)
        _deal(executor.buffer, parts)

    return start(action, whole(group), tensor.device, parts, async_op)


def reduce_scatter(
    output: torch.Tensor,
    input_list: Tensors,
    algorithm: str | Algorithm = "ring",
    op: Op = "sum",
    group: Group = None,
    async_op: bool = False,
) -> Handle:
    """``output`` holds the reduction of entry ``rank`` of every rank's ``input_list``."""
    if (ranks := ranks_of(group)) is None:
        return None
    rank, world_size = ranks
    check_tensor(output, "output", group, is_result=True)
    parts = check_list(input_list, "input_list", output, world_size, "", group, is_result=False, like="output")
    executor = executor_for("reduce_scatter", algorithm, output, op, None, group, world_size)

    def action() -> None:
        _join(parts, executor.buffer)
        executor.run(executor.buffer)
        copy(part(executor.buffer, rank, world_size), output)

    return start(action, whole(group), output.device, [output], async_op)


def all_to_all(
    output_tensor_list: Tensors,
    input_tensor_list: Tensors,
    algorithm: str | Algorithm = "pairwise",
    group: Group = None,
    async_op: bool = False,
) -> Handle:
    """Entry i of ``output_tensor_list`` holds entry ``rank`` of rank i's ``input_tensor_list``."""
    if (ranks := ranks_of(group)) is None:
        return None
    _, world_size = ranks
    first = first_of(input_tensor_list, "input_tensor_list", group)
    like = "input_tensor_list[0]"
    given = check_list(input_tensor_list, "input_tensor_list", first, world_size, "", group, False, like)
    parts = check_list(output_tensor_list, "output_tensor_list", first, world_size, "", group, True, like)
    executor = executor_for("all_to_all", algorithm, first, "sum", None, group, world_size)

    def action() -> None:
        _join(given, executor.buffer)
        executor.run(executor.buffer)
        _deal(executor.buffer, parts)

    return start(action, whole(group), first.device, parts, async_op)


def gather(
    tensor: torch.Tensor,
    gather_list: Sequence[torch.Tensor] | None = None,
    dst: int | None = None,
    algorithm: str | Algorithm = "binomial",
    group: Group = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Handle:
    """On ``dst``, ``gather_list`` holds every rank's ``tensor`` by rank; elsewhere it is not given."""
    if (ranks := ranks_of(group)) is None:
        return None
    rank, world_size = ranks
    root = world_root(group, dst, group_dst, "dst")
    holds = group_root(group, root) == rank
    check_tensor(tensor, "tensor", group, is_result=False)
    wanted = world_size if holds else 0
    parts = check_list(gather_list, "gather_list", tensor, wanted, f"dst {root}", group, is_result=True)
    executor = executor_for("gather", algorithm, tensor, "sum", root, group, world_size)

    def action() -> None:
        copy(tensor, part(executor.buffer, rank, world_size))
        executor.run(executor.buffer)
        _deal(executor.buffer, parts)

    return start(action, whole(group), tensor.device, parts, async_op)


def scatter(
    tensor: torch.Tensor,
    scatter_list: Sequence[torch.Tensor] | None = None,
    src: int | None = None,
    algorithm: str | Algorithm = "binomial",
    group: Group = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Handle:
    """``tensor`` holds entry ``rank`` of the ``scatter_list`` of ``src``; elsewhere that is not given."""
    if (ranks := ranks_of(group)) is None:
        return None
    rank, world_size = ranks
    root = world_root(group, src, group_src, "src")
    holds = group_root(group, root) == rank
    check_tensor(tensor, "tensor", group, is_result=True)
    wanted = world_size if holds else 0
    parts = check_list(scatter_list, "scatter_list", tensor, wanted, f"src {root}", group, is_result=False)
    executor = executor_for("scatter", algorithm, tensor, "sum", root, group, world_size)

    def action() -> None:
        _join(parts, executor.buffer)
        executor.run(executor.buffer)
        copy(part(executor.buffer, rank, world_size), tensor)

    return start(action, whole(group), tensor.device, [tensor], async_op)


def _join(parts: Tensors, buffer: torch.Tensor) -> None:
    """The contiguous ``buffer`` holds one tensor after the other; without any it stays as it is."""
    for number, tensor in enumerate(parts):
        copy(tensor, part(buffer, number, len(parts)))


def _deal(buffer: torch.Tensor, parts: Tensors) -> None:
    """Each tensor holds its part of the ``buffer``."""
    for number, tensor in enumerate(parts):
        copy(part(buffer, number, len(parts)), tensor)
