"""Where in memory each operation of a rank program reads and writes: its steps as slices of real tensors.

What lands in chunks that nothing in its step reads goes there directly, and the rest by way of *staging*, memory of the
executor's own, so that every operation sees the chunks as they were before the step.

A large buffer is worked on in *lanes*: lane i of k is the i-th k-th of every chunk. Data keeps its place within a
chunk, so each lane may run the whole program by itself.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import torch

from collectives.step import Kind, Operation, Step, copy, extent, offset, reduce

Piece = Callable[[int], torch.Tensor]  # so many elements of staging that nobody else has in this step


class Work(Protocol):
    """What torch.distributed gives for a message under way."""

    def wait(self) -> object: ...


class Landing(NamedTuple):
    """Elements that are copied to where they belong, or added to what is there."""

    operation: Operation  # as a local one: what remains to be done of a receive is a copy or a reduce
    data: torch.Tensor
    target: torch.Tensor
    combines: bool


@dataclass(slots=True, eq=False)
class Transfer:
    """A message: the slice that is sent or received into, and what happens as soon as it is received."""

    operation: Operation
    step: int
    position: int  # of the operation in its step
    data: torch.Tensor
    landing: Landing | None = None
    is_staged: bool = False  # received into staging
    peer: int = field(init=False)
    data_list: list[torch.Tensor] = field(init=False)  # as a process group takes it
    nbytes: int = field(init=False)
    work: Work = field(init=False)  # while it is under way
    posted: float = 0.0  # when, if anybody asks

    def __post_init__(self) -> None:
        self.peer, self.data_list, self.nbytes = self.operation.peer, [self.data], self.data.nbytes


class PlacedStep(NamedTuple):
    """The operations of one step by when they happen. Operations on no elements are left out."""

    number: int
    receives: list[Transfer]
    sends: list[Transfer]
    kept: list[tuple[torch.Tensor, torch.Tensor]]  # (from, to): copied before anything lands
    local: list[Landing]  # while messages are under way
    late: list[Landing]  # when all messages are through


class Memory(NamedTuple):
    """The tensors that a program's chunks are cut from, and which lane of them is meant."""

    buffer: torch.Tensor
    scratch: torch.Tensor
    staging: torch.Tensor
    chunks: int
    lane: int = 0
    lanes: int = 1

    def slice(self, chunk: int, count: int) -> torch.Tensor:
        """``count`` chunks from ``chunk`` on, of the buffer or of scratch; with several lanes, one chunk's part."""
        n = self.buffer.numel()
        begin, size = offset(chunk, n, self.chunks), extent(chunk, count, n, self.chunks)
        if self.lanes > 1:
            first, last = self.lane * size // self.lanes, (self.lane + 1) * size // self.lanes
            begin, size = begin + first, last - first
        return self.buffer[begin : begin + size] if chunk < self.chunks else self.scratch[begin - n : begin - n + size]


def placed(program: tuple[Step, ...], memory: Memory, areas: int = 1, area: int = 0) -> list[PlacedStep]:
    """The steps that move anything, with their slices; each uses the next of so many ``areas`` of staging."""
    size = memory.staging.numel() // areas
    steps: list[PlacedStep] = []
    for number, step in enumerate(program):
        first = (area + len(steps)) % areas * size
        found = _placed_step(number, step, memory._replace(staging=memory.staging[first : first + size]))
        if any(found[1:]):
            steps.append(found)
    return steps


def staging_elements(program: tuple[Step, ...], n: int, chunks: int, lanes: int = 1) -> int:
    """Elements of staging that the neediest step can use in one lane."""

    def need(op: Operation) -> int:
        return extent(op.into, op.count, n, chunks) if lanes == 1 else op.count * -(-(n // chunks + 1) // lanes)

    return max((sum(need(op) for op in step if _is_staged(op, step)) for step in program), default=0)


def _is_staged(op: Operation, step: Step) -> bool:
    """Whether it needs memory beside its target: to be reduced from, or because something in its step reads that."""
    return op.kind is Kind.RECV_REDUCE or any(not set(op.target).isdisjoint(other.source) for other in step)


def _placed_step(number: int, step: Step, memory: Memory) -> PlacedStep:
    result = PlacedStep(number, [], [], [], [], [])
    read = {chunk for op in step for chunk in op.source}
    piece = _pieces(memory.staging)
    for position, whole in enumerate(step):
        in_place = read.isdisjoint(whole.target)
        for op in _each_chunk(whole) if memory.lanes > 1 else (whole,):
            data = memory.slice(op.chunk, op.count)
            if data.numel() and op.kind is Kind.SEND:
                result.sends.append(Transfer(whole, number, position, data))
            elif data.numel() and op.kind is Kind.RECV and in_place:
                result.receives.append(Transfer(whole, number, position, data))
            elif data.numel() and op.kind.receives:
                _place_receive(result, whole, position, data, in_place, piece)
            elif data.numel():
                _place_local(result, whole, data, memory.slice(op.into, op.count), in_place, piece)
    return result


def _each_chunk(op: Operation) -> Iterator[Operation]:
    """Lanes of consecutive chunks do not lie side by side, so each chunk travels on its own."""
    for i in range(op.count):
        yield Operation(op.kind, op.peer, op.chunk + i, 1, op.into if op.kind is Kind.SEND else op.into + i)


def _place_receive(
    step: PlacedStep, op: Operation, position: int, target: torch.Tensor, in_place: bool, piece: Piece
) -> None:
    """It is received into staging, and lands at once or, where something else in the step reads its target, late."""
    arrived = piece(target.numel())
    rest = (reduce if op.kind.combines else copy)(op.chunk, op.into, op.count)
    landing = Landing(rest, arrived, target, op.kind.combines)
    step.receives.append(Transfer(op, step.number, position, arrived, landing if in_place else None, is_staged=True))
    if not in_place:
        step.late.append(landing)


def _place_local(
    step: PlacedStep, op: Operation, data: torch.Tensor, target: torch.Tensor, in_place: bool, piece: Piece
) -> None:
    """It happens at once or, where something else in the step reads its target, late but with what it read before."""
    if in_place:
        step.local.append(Landing(op, data, target, op.kind.combines))
        return
    before = piece(target.numel())
    step.kept.append((data, before))
    step.late.append(Landing(op, before, target, op.kind.combines))


def _pieces(staging: torch.Tensor) -> Piece:
    """Pieces of staging, one after the other."""
    used = 0

    def piece(size: int) -> torch.Tensor:
        nonlocal used
        used += size
        return staging[used - size : used]

    return piece
