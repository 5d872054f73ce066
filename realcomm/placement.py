"""Where in memory each operation of a rank program reads and writes: its steps as slices of real tensors.

What lands in chunks that nothing in its step reads goes there directly, and the rest by way of *staging*, memory of the
executor's own, so that every operation sees the chunks as they were before the step.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch

from collectives.step import Kind, Operation, Step, copy, extent, offset, reduce

Piece = Callable[[int], torch.Tensor]  # so many elements of staging that nobody else has in this step


class Landing(NamedTuple):
    """Elements that are copied to where they belong, or added to what is there."""

    operation: Operation  # as a local one: what remains to be done of a receive is a copy or a reduce
    data: torch.Tensor
    target: torch.Tensor
    combines: bool


class Transfer(NamedTuple):
    """A message: the slice that is sent or received into, and what happens as soon as it is received."""

    operation: Operation
    data: torch.Tensor
    landing: Landing | None = None


class PlacedStep(NamedTuple):
    """The operations of one step by when they happen. Operations on no elements are left out."""

    number: int
    receives: list[Transfer]
    sends: list[Transfer]
    kept: list[tuple[torch.Tensor, torch.Tensor]]  # (from, to): copied before anything lands
    local: list[Landing]  # while messages are under way
    late: list[Landing]  # when all messages are through


class Memory(NamedTuple):
    """The tensors that a program's chunks are cut from."""

    buffer: torch.Tensor
    scratch: torch.Tensor
    staging: torch.Tensor
    chunks: int

    def slice(self, chunk: int, count: int) -> torch.Tensor:
        """``count`` chunks from ``chunk`` on, of the buffer or of scratch."""
        n = self.buffer.numel()
        begin, size = offset(chunk, n, self.chunks), extent(chunk, count, n, self.chunks)
        return self.buffer[begin : begin + size] if chunk < self.chunks else self.scratch[begin - n : begin - n + size]


def placed(program: tuple[Step, ...], memory: Memory) -> list[PlacedStep]:
    """The steps that move anything, with their slices."""
    steps = (_placed_step(number, step, memory) for number, step in enumerate(program))
    return [step for step in steps if any(step[1:])]


def staging_elements(program: tuple[Step, ...], n: int, chunks: int) -> int:
    """Elements of staging that the neediest step can use."""
    needs = (sum(extent(op.into, op.count, n, chunks) for op in step if op.kind != Kind.SEND) for step in program)
    return max(needs, default=0)


def _placed_step(number: int, step: Step, memory: Memory) -> PlacedStep:
    result = PlacedStep(number, [], [], [], [], [])
    read = {chunk for op in step for chunk in op.source}
    piece = _pieces(memory.staging)
    for op in step:
        data, in_place = memory.slice(op.chunk, op.count), read.isdisjoint(op.target)
        if data.numel() and op.kind is Kind.SEND:
            result.sends.append(Transfer(op, data))
        elif data.numel() and op.kind is Kind.RECV and in_place:
            result.receives.append(Transfer(op, data))
        elif data.numel() and op.kind.receives:
            _place_receive(result, op, data, in_place, piece)
        elif data.numel():
            _place_local(result, op, data, memory.slice(op.into, op.count), in_place, piece)
    return result


def _place_receive(step: PlacedStep, op: Operation, target: torch.Tensor, in_place: bool, piece: Piece) -> None:
    """It is received into staging, and lands at once or, where something else in the step reads its target, late."""
    arrived = piece(target.numel())
    rest = (reduce if op.kind.combines else copy)(op.chunk, op.into, op.count)
    landing = Landing(rest, arrived, target, op.kind.combines)
    step.receives.append(Transfer(op, arrived, landing if in_place else None))
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
