"""The steps of a rank program as operations on real tensors: where in memory each reads and writes.

A receive into chunks that no operation of its step reads goes there directly. Everything else is received or saved in
*staging*, memory of the executor's own, and written from there, so that every operation sees the chunks as they were
before the step.

A large buffer is worked on in *slices*: slice i of k is the i-th k-th of every chunk. Data keeps its position within a
chunk, so each slice may run the whole program by itself.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import torch

from collectives.step import Kind, Operation, Step, copy, extent, offset, reduce

Allocate = Callable[[int], torch.Tensor]  # returns so many elements of staging that are not in use in this step


class MessageHandle(Protocol):
    """The handle that torch.distributed returns for a message under way."""

    def wait(self) -> object: ...


class Write(NamedTuple):
    """Elements to be copied to a target, or reduced into it."""

    operation: Operation  # as a local one: what remains of a receive is a copy or a reduce
    source: torch.Tensor
    target: torch.Tensor
    combines: bool


@dataclass(slots=True, eq=False)
class Transfer:
    """A message, or a slice of one: the tensor that is sent or received into, and the write that follows a receive."""

    operation: Operation
    step: int
    position: int  # of the operation in its step
    tensor: torch.Tensor
    write: Write | None = None  # done as soon as it is received
    is_staged: bool = False  # received into staging
    peer: int = field(init=False)
    tensor_list: list[torch.Tensor] = field(init=False)  # as a process group takes it
    nbytes: int = field(init=False)
    work: MessageHandle = field(init=False)  # while it is under way
    posted: float = 0.0  # when, if times are recorded

    def __post_init__(self) -> None:
        self.peer, self.tensor_list, self.nbytes = self.operation.peer, [self.tensor], self.tensor.nbytes


class TensorStep(NamedTuple):
    """The operations of one step by when they happen, without those on no elements."""

    number: int
    receives: list[Transfer]
    sends: list[Transfer]
    saves: list[tuple[torch.Tensor, torch.Tensor]]  # (from, to): copied before anything is written
    writes: list[Write]  # while messages are under way
    late_writes: list[Write]  # when all messages are through


class Memory(NamedTuple):
    """The tensors that hold a program's chunks, and the slice of them that is meant."""

    buffer: torch.Tensor
    scratch: torch.Tensor
    staging: torch.Tensor
    chunks: int
    slice: int = 0
    slices: int = 1

    def elements(self, chunk: int, count: int) -> torch.Tensor:
        """Return ``count`` chunks from ``chunk`` on, of the buffer or of scratch; with several slices, one's share."""
        n = self.buffer.numel()
        begin, size = offset(chunk, n, self.chunks), extent(chunk, count, n, self.chunks)
        if self.slices > 1:
            first, last = self.slice * size // self.slices, (self.slice + 1) * size // self.slices
            begin, size = begin + first, last - first
        return self.buffer[begin : begin + size] if chunk < self.chunks else self.scratch[begin - n : begin - n + size]


def bind_steps(program: tuple[Step, ...], memory: Memory, areas: int = 1, first_area: int = 0) -> list[TensorStep]:
    """Return the steps that move anything, on tensors of ``memory``.

    Staging is divided into ``areas``, which the steps use in rotation, beginning with ``first_area``.
    """
    size = memory.staging.numel() // areas
    steps: list[TensorStep] = []
    for number, step in enumerate(program):
        begin = (first_area + len(steps)) % areas * size
        bound = _bind_step(number, step, memory._replace(staging=memory.staging[begin : begin + size]))
        if any(bound[1:]):
            steps.append(bound)
    return steps


def staging_elements(program: tuple[Step, ...], n: int, chunks: int, slices: int = 1) -> int:
    """Return the elements of staging that suffice for any step of one slice."""

    def need(op: Operation) -> int:
        return extent(op.into, op.count, n, chunks) if slices == 1 else op.count * -(-(n // chunks + 1) // slices)

    return max((sum(need(op) for op in step if _needs_staging(op, step)) for step in program), default=0)


def _needs_staging(op: Operation, step: Step) -> bool:
    """Return whether ``op`` needs memory beside its target: to reduce from, or as its step reads the target."""
    return op.kind is Kind.RECV_REDUCE or any(not set(op.target).isdisjoint(other.source) for other in step)


def _bind_step(number: int, step: Step, memory: Memory) -> TensorStep:
    result = TensorStep(number, [], [], [], [], [])
    late = _written_late(step)
    allocate = _allocator(memory.staging)
    for position, whole in enumerate(step):
        in_place = late.isdisjoint(whole.target)
        for op in _single_chunks(whole) if memory.slices > 1 else (whole,):
            tensor = memory.elements(op.chunk, op.count)
            if tensor.numel() and op.kind is Kind.SEND:
                result.sends.append(Transfer(whole, number, position, tensor))
            elif tensor.numel() and op.kind is Kind.RECV and in_place:
                result.receives.append(Transfer(whole, number, position, tensor))
            elif tensor.numel() and op.kind.receives:
                _bind_receive(result, whole, position, tensor, in_place, allocate)
            elif tensor.numel():
                _bind_local(result, whole, tensor, memory.elements(op.into, op.count), in_place, allocate)
    return result


def _written_late(step: Step) -> set[int]:
    """Return the chunks that are written when all messages are through.

    These are the chunks that an operation of the step reads. A ``recv_reduce`` of several chunks is one write, and
    those that share a chunk are written in the order of the step; so if one of their chunks is written late, all are.
    """
    late = {chunk for op in step for chunk in op.source}
    targets = [op.target for op in step if op.kind is Kind.RECV_REDUCE]
    before = -1
    while before < len(late):
        before = len(late)
        late.update(chunk for target in targets if not late.isdisjoint(target) for chunk in target)
    return late


def _single_chunks(op: Operation) -> Iterator[Operation]:
    """Yield the operation for each of its chunks: slices of consecutive chunks do not lie side by side."""
    for i in range(op.count):
        yield Operation(op.kind, op.peer, op.chunk + i, 1, op.into if op.kind is Kind.SEND else op.into + i)


def _bind_receive(
    step: TensorStep, op: Operation, position: int, target: torch.Tensor, in_place: bool, allocate: Allocate
) -> None:
    """Add a receive into staging. It is written at once or, if something else in the step reads the target, late."""
    staged = allocate(target.numel())
    rest = (reduce if op.kind.combines else copy)(op.chunk, op.into, op.count)
    write = Write(rest, staged, target, op.kind.combines)
    step.receives.append(Transfer(op, step.number, position, staged, write if in_place else None, is_staged=True))
    if not in_place:
        step.late_writes.append(write)


def _bind_local(
    step: TensorStep, op: Operation, source: torch.Tensor, target: torch.Tensor, in_place: bool, allocate: Allocate
) -> None:
    """Add a local operation. If something else in the step reads its target, it is written late, from a saved copy."""
    if in_place:
        step.writes.append(Write(op, source, target, op.kind.combines))
        return
    saved = allocate(target.numel())
    step.saves.append((source, saved))
    step.late_writes.append(Write(op, saved, target, op.kind.combines))


def _allocator(staging: torch.Tensor) -> Allocate:
    """Return a function that hands out staging, one piece after the other."""
    used = 0

    def allocate(size: int) -> torch.Tensor:
        nonlocal used
        used += size
        return staging[used - size : used]

    return allocate
