"""One call of a collective: copy the arguments into a buffer, run an algorithm on it, copy the results out.

All twelve functions do this, with different copies.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist

from collectives.catalogue import library
from collectives.declaration import Algorithm
from collectives.proof.verifier import verify
from collectives.request import Request, part_slice
from realcomm.execution.executor import Executor, dtype_name
from realcomm.execution.group_memory import Recent, keep_for
from realcomm.functions.arguments import Group, Op, op_name, process_group, rank_and_world_size, resolve_algorithm
from realcomm.functions.work import Handle, start_work

ALL = None  # in place of the number of a part: the whole buffer
Copies = Sequence[tuple[torch.Tensor, int | None]]  # a tensor, and the part of the buffer that has its elements


class Buffer(NamedTuple):
    """The buffer that a collective works on, and what is copied into it before and out of it after."""

    elements: int
    like: torch.Tensor  # of the buffer's type and device
    inputs: Copies = ()
    outputs: Copies = ()
    in_place: torch.Tensor | None = None  # serves as the buffer if its memory allows, and needs no copies then
    root: int = 0  # a rank of the group


Prepare = Callable[[int, int], Buffer]  # of (rank, world_size)


def run_collective(
    collective: str,
    algorithm: str | Algorithm,
    prepare: Prepare,
    group: Group,
    async_op: bool,
    op: Op = "sum",
) -> Handle:
    """Run a collective on the buffer that ``prepare(rank, world_size)`` describes after it has checked the arguments.

    Return None, or a handle if ``async_op``; a rank outside the group does nothing. Raise InputError for arguments that
    do not fit.
    """
    if (ranks := rank_and_world_size(group)) is None:
        return None
    buffer = prepare(*ranks)
    found, dtype = resolve_algorithm(collective, algorithm), dtype_name(buffer.like.dtype)
    request = Request(found, buffer.elements, dtype, op_name(op), buffer.root)
    whole_group = process_group(group)
    device, kept = buffer.like.device, keep_for(whole_group, "executors", Recent[Executor])
    executor = kept.find((request, device), lambda: _make_executor(request, whole_group, device))

    def action() -> None:
        _run(executor, buffer, ranks[1])

    results = [tensor for tensor, _ in buffer.outputs]
    return start_work(action, whole_group, buffer.like.device, results, async_op)


def _run(executor: Executor, buffer: Buffer, world_size: int) -> None:
    in_place = buffer.in_place
    memory = in_place if in_place is not None and is_plain(in_place) else executor.buffer
    for tensor, number in buffer.inputs:
        copy_elements(tensor, _part(memory, number, world_size))
    executor.run(memory)
    for tensor, number in buffer.outputs:
        copy_elements(_part(memory, number, world_size), tensor)


def _make_executor(request: Request, group: dist.ProcessGroup, device: torch.device) -> Executor:
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    if request.algorithm not in library().values():
        verify(request.algorithm, world_size, request.root)  # the library's own are verified by its tests
    return Executor(request, rank, world_size, group, device)


def is_plain(tensor: torch.Tensor) -> bool:
    """Return whether the elements lie in memory one after the other, with their own values, ready to be worked on."""
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def copy_elements(source: torch.Tensor, target: torch.Tensor) -> None:
    """Copy all elements in the order of their indices, whatever the shapes; do nothing if both are the same tensor."""
    if target is not source:
        target.detach().copy_(source.detach().reshape(target.shape))


def _part(buffer: torch.Tensor, number: int | None, world_size: int) -> torch.Tensor:
    """Return one of ``world_size`` equal parts of a contiguous tensor, or all of it."""
    if number is ALL:
        return buffer
    return buffer.detach().view(-1)[part_slice(number, buffer.numel(), world_size)]
