"""Assign memory to the operations of a rank program: the elements that each operation reads and writes.

The executor uses tensors as memory. A simulator uses ``Extent`` objects, which only have a size.

A receive goes directly into its chunks if no operation of the step reads them. All other data first goes to *staging*,
additional memory of the executor, and is then written to its chunks. In this way, every operation sees the chunks as
they were before the step.

A large buffer is processed in *slices*: every chunk is divided into k slices, and slice i consists of the i-th piece of
every chunk. Data keeps its position within a chunk, so each slice can run through the whole program independently.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

from collectives.step import Kind, Operation, Step, copy, extent, offset, reduce


class Elements(Protocol):
    """The interface of consecutive elements in memory, such as a one-dimensional torch tensor."""

    @property
    def nbytes(self) -> int: ...
    def numel(self) -> int: ...  # number of elements
    def __getitem__(self, index: slice, /) -> Self: ...


E = TypeVar("E", bound=Elements)


@dataclass(frozen=True, slots=True)
class Extent:
    """A stand-in for a tensor that has a size but no memory. ``itemsize`` is the size of an element in bytes.

    >>> Extent(10, itemsize=4)[2:5].nbytes
    12
    """

    elements: int
    itemsize: int

    @property
    def nbytes(self) -> int:
        return self.elements * self.itemsize

    def numel(self) -> int:
        return self.elements

    def __getitem__(self, index: slice, /) -> "Extent":
        return Extent(len(range(*index.indices(self.elements))), self.itemsize)


Allocate = Callable[[int], E]  # returns this many elements of staging that are unused in this step


class Write(NamedTuple, Generic[E]):
    """A local write from ``source`` to ``target``: a reduction if ``combines`` is True, otherwise a copy."""

    operation: Operation  # local: the write of a receive is a copy or a reduce
    source: E
    target: E
    combines: bool


@dataclass(slots=True, eq=False)
class Transfer(Generic[E]):
    """A send or a receive of consecutive elements: a message of the program, or one slice of it."""

    operation: Operation
    step: int
    position: int  # index of the operation in its step
    elements: E
    write: Write[E] | None = None  # executed as soon as the message is received
    is_staged: bool = False  # received into staging
    peer: int = field(init=False)
    elements_list: list[E] = field(init=False)  # process groups take lists of tensors
    nbytes: int = field(init=False)
    work: Any = field(init=False)  # the handle that torch.distributed returns, set while the message is in flight
    posted: float = 0.0  # the time of posting, if times are recorded

    def __post_init__(self) -> None:
        self.peer, self.elements_list = self.operation.peer, [self.elements]
        self.nbytes = self.elements.nbytes


class BoundStep(NamedTuple, Generic[E]):
    """One step of a program with the memory of each operation. Operations that move no data are omitted."""

    number: int
    receives: list[Transfer[E]]
    sends: list[Transfer[E]]
    saves: list[tuple[E, E]]  # (from, to): copied before anything is written
    writes: list[Write[E]]  # executed while messages are in flight
    late_writes: list[Write[E]]  # executed when all messages are complete


class SliceMemory(NamedTuple, Generic[E]):
    """The buffer, scratch and staging memory of a program, restricted to one slice of each chunk."""

    buffer: E
    scratch: E
    staging: E
    chunks: int
    slice: int = 0
    slices: int = 1

    def elements(self, chunk: int, count: int) -> E:
        """Return the memory of ``count`` chunks, starting with ``chunk``, restricted to the slice."""
        n = self.buffer.numel()
        begin, size = offset(chunk, n, self.chunks), extent(chunk, count, n, self.chunks)
        if self.slices > 1:
            first, last = self.slice * size // self.slices, (self.slice + 1) * size // self.slices
            begin, size = begin + first, last - first
        return self.buffer[begin : begin + size] if chunk < self.chunks else self.scratch[begin - n : begin - n + size]


def bind_steps(
    program: tuple[Step, ...], memory: SliceMemory[E], areas: int = 1, first_area: int = 0
) -> list[BoundStep[E]]:
    """Return the steps with the memory of each operation. Steps that move no data are omitted.

    The staging memory has ``areas`` areas, which consecutive steps use in turn, starting with ``first_area``.
    """
    size = memory.staging.numel() // areas
    steps: list[BoundStep[E]] = []
    for number, step in enumerate(program):
        begin = (first_area + len(steps)) % areas * size
        bound = _bind_step(number, step, memory._replace(staging=memory.staging[begin : begin + size]))
        if any(bound[1:]):
            steps.append(bound)
    return steps


def staging_elements(program: tuple[Step, ...], n: int, chunks: int, slices: int = 1) -> int:
    """Return how many elements of staging memory suffice for every step if each chunk has ``slices`` slices."""

    def need(op: Operation) -> int:
        return extent(op.into, op.count, n, chunks) if slices == 1 else op.count * -(-(n // chunks + 1) // slices)

    return max((sum(need(op) for op in step if _needs_staging(op, step)) for step in program), default=0)


def _needs_staging(op: Operation, step: Step) -> bool:
    return op.kind is Kind.RECV_REDUCE or any(not set(op.target).isdisjoint(other.source) for other in step)


def _bind_step(number: int, step: Step, memory: SliceMemory[E]) -> BoundStep[E]:
    result = BoundStep[E](number, [], [], [], [], [])
    late = _written_late(step)
    allocate = _allocator(memory.staging)
    for position, operation in enumerate(step):
        in_place = late.isdisjoint(operation.target)
        for op in _single_chunks(operation) if memory.slices > 1 else (operation,):
            part = memory.elements(op.chunk, op.count)
            if part.numel() and op.kind is Kind.SEND:
                result.sends.append(Transfer(operation, number, position, part))
            elif part.numel() and op.kind is Kind.RECV and in_place:
                result.receives.append(Transfer(operation, number, position, part))
            elif part.numel() and op.kind.receives:
                _bind_receive(result, operation, position, part, in_place, allocate)
            elif part.numel():
                _bind_local(result, operation, part, memory.elements(op.into, op.count), in_place, allocate)
    return result


def _written_late(step: Step) -> set[int]:
    """Return the chunks that a step must not write before all of its messages are complete.

    These are the chunks that the step also reads. If a ``recv_reduce`` writes such a chunk, all of its chunks are
    included, because it writes them at once.
    """
    late = {chunk for op in step for chunk in op.source}
    targets = [op.target for op in step if op.kind is Kind.RECV_REDUCE]
    before = -1
    while before < len(late):
        before = len(late)
        late.update(chunk for target in targets if not late.isdisjoint(target) for chunk in target)
    return late


def _single_chunks(op: Operation) -> Iterator[Operation]:
    """Split an operation into one per chunk, because the slices of consecutive chunks are not adjacent in memory."""
    for i in range(op.count):
        yield Operation(op.kind, op.peer, op.chunk + i, 1, op.into if op.kind is Kind.SEND else op.into + i)


def _bind_receive(
    step: BoundStep[E], op: Operation, position: int, target: E, in_place: bool, allocate: Allocate[E]
) -> None:
    staged = allocate(target.numel())
    rest = (reduce if op.kind.combines else copy)(op.chunk, op.into, op.count)
    write = Write(rest, staged, target, op.kind.combines)
    step.receives.append(Transfer(op, step.number, position, staged, write if in_place else None, is_staged=True))
    if not in_place:
        step.late_writes.append(write)


def _bind_local(step: BoundStep[E], op: Operation, source: E, target: E, in_place: bool, allocate: Allocate[E]) -> None:
    if in_place:
        step.writes.append(Write(op, source, target, op.kind.combines))
        return
    saved = allocate(target.numel())
    step.saves.append((source, saved))
    step.late_writes.append(Write(op, saved, target, op.kind.combines))


def _allocator(staging: E) -> Allocate[E]:
    used = 0

    def allocate(size: int) -> E:
        nonlocal used
        used += size
        return staging[used - size : used]

    return allocate
