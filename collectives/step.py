"""Define the operations that rank programs yield.

A rank program is a generator function of ``(rank, world_size)``, and of ``root`` if the collective has one. It yields
*steps*: tuples of operations that are posted together and awaited together, like ``dist.batch_isend_irecv`` followed by
``wait()`` on each request. DESIGN.md lists the rules of programs, and ``collectives.schedule.rules`` checks them.

Data stays in its chunk: data of chunk k is received in chunk k, or in scratch of the same size. Only an all_to_all
moves data to other chunks, so all of its chunks must be equally large. Scratch chunk i is as large as chunk ``i %
chunks``.
"""

import sys
from collections.abc import Iterator, Sequence
from enum import IntEnum
from numbers import Integral
from types import GeneratorType
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from collectives.errors import InputError, shorten, with_line
from collectives.symbolic_rank import ShiftedRank, VectorRank


class Kind(IntEnum):
    """The kind of an operation: send, receive, receive and reduce, local copy, or local reduce."""

    SEND = 0
    RECV = 1
    RECV_REDUCE = 2
    COPY = 3
    REDUCE = 4

    @property
    def receives(self) -> bool:
        return self in RECEIVING

    @property
    def is_local(self) -> bool:
        return self in LOCAL

    @property
    def combines(self) -> bool:
        """Whether the operation reduces data into its target chunks instead of overwriting them."""
        return self in COMBINING


SEND, RECV, RECV_REDUCE, COPY, REDUCE = Kind  # the lookup of a member takes longer than its use
RECEIVING, LOCAL, COMBINING = (RECV, RECV_REDUCE), (COPY, REDUCE), (RECV_REDUCE, REDUCE)


class Operation(NamedTuple):
    """One operation on ``count`` consecutive chunks, such as a send or a local copy."""

    kind: Kind
    peer: int  # the other rank; -1 for local operations
    chunk: int  # first chunk read by a send, copy or reduce; first chunk written by a receive
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody needs
    into: int  # first chunk written; -1 for a send

    @property
    def target(self) -> range:
        """The chunks that the operation writes. Empty for a send."""
        return range(0) if self.kind is Kind.SEND else range(self.into, self.into + self.count)

    @property
    def source(self) -> range:
        """The chunks that the operation reads, with their content before the step. Empty for a receive."""
        return range(0) if self.kind.receives else range(self.chunk, self.chunk + self.count)

    def __str__(self) -> str:
        chunks = f"{self.chunk}" if self.count <= 1 else f"{self.chunk}..{self.chunk + self.count - 1}"
        if self.kind.is_local:
            return f"{self.kind.name.lower()}(chunk {chunks} into {self.into})"
        direction = "to" if self.kind is Kind.SEND else "from"
        return f"{self.kind.name.lower()}({direction} rank {self.peer}, chunk {chunks})"


Step = tuple[Operation, ...]
Program = Iterator[Step | Operation]


def send(peer: int, chunk: int, count: int = 1) -> Operation:
    """Return an operation that sends ``count`` consecutive chunks to rank ``peer``. The first one is ``chunk``.

    Raise InputError for an invalid peer, chunk or count. The message names the line of the call.

    >>> print(send(1, chunk=4, count=2))
    send(to rank 1, chunk 4..5)
    """
    if not (type(peer) is type(chunk) is type(count) is int and peer >= 0 <= chunk and count > 0):
        peer, chunk, count = _check("send", peer=peer, chunk=chunk, count=count)
    return Operation(SEND, peer, chunk, count, -1)


def recv(peer: int, chunk: int, count: int = 1) -> Operation:
    """Return an operation that receives ``count`` consecutive chunks from rank ``peer``. The first one is ``chunk``.

    Raise InputError for an invalid peer, chunk or count.

    >>> print(recv(0, chunk=4))
    recv(from rank 0, chunk 4)
    """
    if not (type(peer) is type(chunk) is type(count) is int and peer >= 0 <= chunk and count > 0):
        peer, chunk, count = _check("recv", peer=peer, chunk=chunk, count=count)
    return Operation(RECV, peer, chunk, count, chunk)


def recv_reduce(peer: int, chunk: int, count: int = 1) -> Operation:
    """Return an operation that receives ``count`` chunks from rank ``peer`` and reduces them into this rank's chunks.

    The first of these consecutive chunks is ``chunk``. Raise InputError for an invalid peer, chunk or count.

    >>> print(recv_reduce(0, chunk=4))
    recv_reduce(from rank 0, chunk 4)
    """
    if not (type(peer) is type(chunk) is type(count) is int and peer >= 0 <= chunk and count > 0):
        peer, chunk, count = _check("recv_reduce", peer=peer, chunk=chunk, count=count)
    return Operation(RECV_REDUCE, peer, chunk, count, chunk)


def copy(chunk: int, into: int, count: int = 1) -> Operation:
    """Return a local operation that copies ``count`` consecutive chunks, starting with ``chunk``, to chunk ``into``.

    Chunk ``chunk + i`` is copied to chunk ``into + i``. Raise InputError for an invalid chunk or count.

    >>> print(copy(0, into=3))
    copy(chunk 0 into 3)
    """
    if not (type(chunk) is type(into) is type(count) is int and chunk >= 0 <= into and count > 0):
        chunk, into, count = _check("copy", chunk=chunk, into=into, count=count)
    return Operation(COPY, -1, chunk, count, into)


def reduce(chunk: int, into: int, count: int = 1) -> Operation:
    """Return a local operation that reduces ``count`` consecutive chunks, starting with ``chunk``, into chunk ``into``.

    Chunk ``chunk + i`` is reduced into chunk ``into + i``. Raise InputError for an invalid chunk or count.

    >>> print(reduce(0, into=3))
    reduce(chunk 0 into 3)
    """
    if not (type(chunk) is type(into) is type(count) is int and chunk >= 0 <= into and count > 0):
        chunk, into, count = _check("reduce", chunk=chunk, into=into, count=count)
    return Operation(REDUCE, -1, chunk, count, into)


def _check(operation: str, **numbers: Any) -> tuple[int, ...]:
    """Return the numbers as ints. Raise InputError for an invalid number. Symbolic ranks are returned unchanged."""
    checked = list[Any]()
    for name, value in numbers.items():
        least = 1 if name == "count" else 0
        is_symbol = isinstance(value, VectorRank | ShiftedRank)
        is_whole = isinstance(value, Integral) and not isinstance(value, bool)
        if not is_symbol and not (is_whole and int(value) >= least):
            wanted = f"an integer of at least {least}" if is_whole else "an integer"
            hint = "; divide with //" if isinstance(value, float) else ""
            caller = sys._getframe(2)
            text = f"{operation}: {name} must be {wanted}, not {shorten(value)}{hint}"
            raise InputError(with_line(text, caller.f_lineno, caller.f_code.co_filename))
        checked.append(value if is_symbol else int(value))
    return tuple(checked)


LARGEST = 2**30  # largest number in an operation, so that the sum of two fits into 32 bits


def describe_invalid(number: object) -> str:
    """Return why a peer, chunk or count is invalid, or an empty string if it is valid."""
    if not isinstance(number, int | np.integer):
        return f"{shorten(number)} is not an integer; peers, chunks and counts must be integers (divide with //)"
    return "" if -LARGEST <= number <= LARGEST else f"{shorten(number, 40)} is too large for a peer, chunk or count"


DEEPEST = 1000  # maximum nesting of programs by ``yield from``


def line_reached(program: object, file: str) -> int:
    """Return the line of ``file`` at which a generator is suspended, or 0 if it is not suspended in this file.

    If the generator delegates with ``yield from``, this is the line of the innermost generator in the file.
    """
    line = 0
    for _ in range(DEEPEST):
        if type(program) is not GeneratorType:
            break
        if program.gi_frame is not None and program.gi_frame.f_code.co_filename == file:
            line = program.gi_frame.f_lineno
        program = program.gi_yieldfrom
    return line


class Spaced(Sequence[int]):
    """A sequence of ``count`` integers that starts with ``first`` and increases by ``apart``.

    Unlike a range, it accepts a symbolic rank as ``first``.

    >>> Spaced(2, 4, 3)[2]
    10
    """

    def __init__(self, first: int, apart: int, count: int) -> None:
        self.first, self.apart, self.count_of = first, apart, count

    def __len__(self) -> int:
        return self.count_of

    def __getitem__(self, index: Any) -> Any:
        if index < 0 or index >= self.count_of:
            raise IndexError(index)
        return self.first + self.apart * index


def on_group(
    program: Program, ranks: Sequence[int], count: int = 1, first_chunk: int = 0, stride: int | None = None
) -> Program:
    """Run a program on a subset of the ranks: rank i of the program becomes the global rank ``ranks[i]``.

    Chunk k of the program becomes ``count`` chunks that start at ``first_chunk + k * stride``. ``stride`` defaults to
    ``count``. Raise InputError for a peer outside the group, or if the chunks of one operation would not be adjacent.

    >>> steps = on_group(iter([send(1, 0), recv(1, 0)]), ranks=[4, 6], count=2)
    >>> [str(operation) for step in steps for operation in step]
    ['send(to rank 6, chunk 0..1)', 'recv(from rank 6, chunk 0..1)']
    """
    first_chunk, count = _check("on_group", first_chunk=first_chunk, count=count)
    apart = count if stride is None else _check("on_group", stride=stride)[0]
    arguments: dict[str, tuple[object, type]] = {"program": (program, Iterator), "ranks": (ranks, Sequence)}
    for name, (value, kind) in arguments.items():
        if not isinstance(value, kind):
            raise InputError(
                f"on_group: {name} must be {'a program' if name == 'program' else 'a list of ranks'}, not "
                f"{shorten(value)}"
            )
    return (tuple(_on_group(op, ranks, count, first_chunk, apart) for op in as_step(step)) for step in program)


def _on_group(op: Operation, ranks: Sequence[int], count: int, first_chunk: int, stride: int) -> Operation:
    is_message = 0 <= op.peer < len(ranks)
    if not is_message and not op.kind.is_local:
        raise InputError(f"{op}: rank {op.peer} does not exist in a group of {len(ranks)} ranks")
    if op.count > 1 and stride != count:
        raise InputError(f"{op}: with stride {stride}, the {op.count} chunks are not contiguous; use stride {count}")
    peer = _member(ranks, op.peer) if is_message else -1
    into = -1 if op.kind is SEND else first_chunk + op.into * stride
    return Operation(op.kind, peer, first_chunk + op.chunk * stride, op.count * count, into)


def _member(ranks: Sequence[int], index: int) -> int:
    """Return ``ranks[index]``. If ``ranks`` is a range, ``index`` can also be a symbolic rank."""
    return ranks.start + ranks.step * index if isinstance(ranks, range) else ranks[index]


def as_step(yielded: object) -> Step:
    """Convert a value that a program yielded into a step, which is a tuple of operations.

    The value can be an operation, or a tuple or list of operations. Raise InputError for any other value.
    """
    if isinstance(yielded, Operation):
        return (yielded,)
    step = tuple(yielded) if isinstance(yielded, tuple | list) else (yielded,)
    for entry in step:
        if not isinstance(entry, Operation):
            hint = "; to run another program, write `yield from program`" if isinstance(entry, Iterator) else ""
            operations = "send, recv, recv_reduce, copy or reduce"
            raise InputError(f"{shorten(entry)} is not an operation; yield {operations}{hint}")
    return step


Index = TypeVar("Index", int, npt.NDArray[np.int64])


def offset(index: Index, n: int, chunks: int) -> Index:
    """Return the index of the first element of chunk ``index``, in a buffer of ``n`` elements and ``chunks`` chunks.

    ``index`` can be an array. Chunk k covers the elements ``[k * n // chunks, (k + 1) * n // chunks)``. Scratch chunks
    follow the buffer and repeat the sizes of its chunks.

    >>> [offset(index, n=10, chunks=4) for index in range(6)]
    [0, 2, 5, 7, 10, 12]
    """
    return index // chunks * n + index % chunks * n // chunks


def extent(chunk: int, count: int, n: int, chunks: int) -> int:
    """Return the number of elements of chunks ``chunk`` to ``chunk + count - 1``, for a buffer of ``n`` elements.

    >>> extent(1, count=2, n=10, chunks=4)
    5
    """
    return offset(chunk + count, n, chunks) - offset(chunk, n, chunks)
