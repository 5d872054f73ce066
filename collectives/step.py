"""The vocabulary of a rank program: what one rank says in one step.

A rank program is a generator function of ``(rank, world_size)``, for rooted collectives ``(rank, world_size, root)``.
It yields *steps*. A step is a tuple of operations that are posted together and awaited together, as
``dist.batch_isend_irecv`` followed by ``wait()`` on each would do. The program sees no tensor, no clock, no network.

* A send carries its chunks as they were before the step; what is received lands when the step completes.
* ``copy`` and ``reduce`` are local, read what was there before the step too, and send nothing.
* A step writes each chunk at most once, or by several ``recv_reduce``: what they receive is reduced into it in the
  order in which the step lists them, whichever arrives first. Only they may share a chunk: a local ``reduce`` costs
  nothing more in a step of its own. A rank never sends to itself.
* The k-th send from a to b meets the k-th receive at b from a.
* Several programs of a rank run at the same time on *channels* of their own: they touch different chunks, and sends
  and receives meet within a channel.
* Chunks from ``chunks`` on are scratch: undefined at the start, sized like chunk ``index % chunks``.
* Data keeps its place: what leaves chunk k of the buffer, or scratch of its size, lands in chunk k or such scratch.
  Only all_to_all moves it, so there all chunks are equally large.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

from collectives.errors import InputError


class Kind(IntEnum):
    """What an operation does."""

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
        """Whether it adds to what its target chunk holds, rather than overwriting it."""
        return self in COMBINING


SEND = Kind.SEND  # looking up a member of an enumeration takes longer than all else that is done with it
RECEIVING, LOCAL, COMBINING = (Kind.RECV, Kind.RECV_REDUCE), (Kind.COPY, Kind.REDUCE), (Kind.RECV_REDUCE, Kind.REDUCE)


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a step: ``count`` consecutive chunks from ``chunk`` on, with ``peer`` or ``into`` or neither."""

    kind: Kind
    peer: int  # the other rank; -1 for local operations
    chunk: int  # first chunk read by a send, copy or reduce; first chunk written by a receive
    count: int
    into: int  # first chunk written; -1 for a send

    @property
    def target(self) -> range:
        """The chunks that the operation writes."""
        return range(0) if self.kind is Kind.SEND else range(self.into, self.into + self.count)

    @property
    def source(self) -> range:
        """The chunks that the operation reads unchanged: nothing for a receive."""
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
    """Send ``count`` chunks from ``chunk`` on to ``peer``."""
    return Operation(Kind.SEND, peer, chunk, count, -1)


def recv(peer: int, chunk: int, count: int = 1) -> Operation:
    """Receive ``count`` chunks from ``peer`` and overwrite ``chunk`` and those that follow."""
    return Operation(Kind.RECV, peer, chunk, count, chunk)


def recv_reduce(peer: int, chunk: int, count: int = 1) -> Operation:
    """Receive ``count`` chunks from ``peer`` and reduce them into ``chunk`` and those that follow."""
    return Operation(Kind.RECV_REDUCE, peer, chunk, count, chunk)


def copy(chunk: int, into: int, count: int = 1) -> Operation:
    """Copy ``count`` of the rank's own chunks over others of its own."""
    return Operation(Kind.COPY, -1, chunk, count, into)


def reduce(chunk: int, into: int, count: int = 1) -> Operation:
    """Reduce ``count`` of the rank's own chunks into others of its own."""
    return Operation(Kind.REDUCE, -1, chunk, count, into)


def on_group(
    program: Program, ranks: Sequence[int], count: int = 1, first_chunk: int = 0, stride: int | None = None
) -> Program:
    """A program written for ranks 0, 1, ... of a group, as these ``ranks`` of the whole world run it.

    Its chunk k is here ``count`` chunks from ``first_chunk + k * stride`` on; ``stride`` is ``count`` unless said.
    Raises InputError for a peer outside the group, or several chunks at once that are not side by side.
    """
    apart = count if stride is None else stride
    for yielded in program:
        yield tuple(_on_group(op, ranks, count, first_chunk, apart) for op in as_step(yielded))


def _on_group(op: Operation, ranks: Sequence[int], count: int, first_chunk: int, stride: int) -> Operation:
    is_message = 0 <= op.peer < len(ranks)
    if not is_message and not op.kind.is_local:
        raise InputError(f"{op}: there is no rank {op.peer} in a group of {len(ranks)}")
    if op.count > 1 and stride != count:
        raise InputError(f"{op}: {op.count} chunks cannot travel together, as the group has them {stride} apart")
    peer = _member(ranks, op.peer) if is_message else -1
    into = -1 if op.kind is SEND else first_chunk + op.into * stride
    return Operation(op.kind, peer, first_chunk + op.chunk * stride, op.count * count, into)


def _member(ranks: Sequence[int], index: int) -> int:
    """``ranks[index]``; of a range by arithmetic, so that one run of a program can speak for many ranks."""
    return ranks.start + ranks.step * index if isinstance(ranks, range) else ranks[index]


def as_step(yielded: object) -> Step:
    """The step that a program yielded: a tuple of operations, or one operation alone.

    Raises InputError for anything else.
    """
    step = tuple(yielded) if isinstance(yielded, tuple | list) else (yielded,)
    for entry in step:
        if not isinstance(entry, Operation):
            hint = "; another program runs by `yield from`" if isinstance(entry, Iterator) else ""
            raise InputError(f"{entry!r} is no operation; a step holds send, recv, recv_reduce, copy and reduce{hint}")
    return step


def offset(index: int, n: int, chunks: int) -> int:
    """First element of chunk ``index`` when a buffer of ``n`` elements, cut in ``chunks``, lies before its scratch.

    Chunk k of c covers elements ``[k * n // c, (k + 1) * n // c)``; scratch repeats these sizes after the buffer.
    """
    whole, part = divmod(index, chunks)
    return whole * n + part * n // chunks


def same_place(one: int, other: int, chunks: int) -> bool:
    """Whether two indices, scratch included, stand for the same chunk of the buffer, and so are equally large."""
    return (one - other) % chunks == 0


def extent(chunk: int, count: int, n: int, chunks: int) -> int:
    """How many elements ``count`` chunks from ``chunk`` on hold, of a buffer of ``n`` elements cut in ``chunks``."""
    return offset(chunk + count, n, chunks) - offset(chunk, n, chunks)
