"""Compute each rank's buffer contents during a collective: which ranks have contributed to each chunk.

The contents come from running the algorithm symbolically, without data.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import or_

import numpy as np

from collectives.catalogue import find_algorithm, library
from collectives.errors import Deadlock, InputError, ProgramError
from collectives.proof.completion import completion_order
from collectives.proof.verifier import ChunkValues, SymbolicRun
from collectives.records.columns import Ints
from collectives.records.messages import Messages
from collectives.records.trace import Trace
from collectives.schedule.build import build_schedule, sound_schedule
from collectives.schedule.schedule import Schedule
from collectives.step import Kind, Operation

Sent = tuple[int, int, int, int, int, int]  # src, channel, step of the sender, dst, first chunk, count
Cell = tuple[int, int, int]  # rank, chunk, contributors


@dataclass
class LandedMessage:
    """The contributors to the chunks that a message carries, and the chunks that it changes on its receiver."""

    rank: int
    step: int  # the receiver's step
    into: int
    carried: list[int]  # contributors of each of its chunks, one bit per rank
    after: list[Cell]  # cells changed by the message and by the local operations that follow


@dataclass(frozen=True)
class Contributions:
    """The ranks that have contributed to each chunk at the start and end of a run, and the effect of each message."""

    start: list[list[int]]  # [rank][chunk], scratch left out
    wanted: list[list[int]]  # [rank][chunk]: contributors at the end; 0 where the collective promises nothing
    landings: dict[Sent, LandedMessage]


def follow_contributions(schedule: Schedule) -> Contributions:
    """Run a schedule symbolically, and return which ranks contribute to each chunk.

    Raise ProgramError if the program deadlocks.

    >>> from collectives import find_algorithm
    >>> from collectives.schedule.build import build_schedule
    >>> follow_contributions(build_schedule(find_algorithm("reduce/naive"), 2)).landings
    {(1, 0, 0, 0, 0, 1): LandedMessage(rank=0, step=0, into=0, carried=[2], after=[(0, 0, 3)])}
    """
    return _follow(_UnjudgedRun(schedule), completion_order(schedule))


def follow_wrong_contributions(schedule: Schedule) -> Contributions:
    """Return which ranks contribute to each chunk in a faulty program, up to its deadlock.

    A message that is sent but never received has contents, but no effect.
    """
    run = _UnjudgedRun(schedule)
    contributions = _follow(run, _until_a_deadlock(schedule))
    for index, (carried, *_) in run.in_flight.items():
        sent = schedule.operation(index)
        contributions.landings[_sent(schedule, index)] = LandedMessage(sent.peer, 0, sent.chunk, list(carried), [])
    return contributions


class _UnjudgedRun(SymbolicRun):
    """A symbolic run that does not report mistakes, such as reading an empty chunk or adding a rank's data twice."""

    def _read(self, rank: int, index: int, op: Operation) -> ChunkValues:
        chunks = slice(op.chunk, op.chunk + op.count)
        return self.who[rank][chunks], self.origin[rank][chunks], self.order[rank][chunks]

    def _reduce(self, rank: int, index: int, op: Operation, values: list[int], origins: list[int]) -> list[int]:
        return [*map(or_, self.who[rank][op.into : op.into + op.count], values)]


def _until_a_deadlock(schedule: Schedule) -> Iterator[tuple[int, int, int]]:
    with suppress(Deadlock):
        yield from completion_order(schedule)


def _follow(run: SymbolicRun, order: Iterable[tuple[int, int, int]]) -> Contributions:
    """Complete the steps of a symbolic run in the given order, and return which ranks contribute to each chunk."""
    schedule = run.schedule
    start = [row[: schedule.chunks] for row in run.who]
    landings: dict[Sent, LandedMessage] = {}
    last: dict[tuple[int, int], LandedMessage] = {}  # the last message that landed, by rank and channel
    for rank, channel, step in order:
        operations = list(enumerate(schedule.programs[rank][channel][step], run.first[rank][channel][step]))
        receives = [index for index, operation in operations if operation.kind in (Kind.RECV, Kind.RECV_REDUCE)]
        arriving = [(index, run.in_flight[run.match[index]][0]) for index in receives]
        run.complete(rank, channel, step)
        for index, carried in arriving:
            sent, operation = run.match[index], schedule.operation(index)
            landing = landings[_sent(schedule, sent)] = LandedMessage(rank, step, operation.into, list(carried), [])
            landing.after += _cells(run, rank, operation)
            last[rank, channel] = landing
        for _, operation in operations:
            if operation.kind in (Kind.COPY, Kind.REDUCE):
                _leave(run, rank, operation, last.get((rank, channel)), start)
    ranks, chunks = schedule.world_size, schedule.chunks
    parts = [run.parts(run.spec.end, rank) for rank in range(ranks)]
    wanted = [[part[chunk * ranks // chunks] for chunk in range(chunks)] for part in parts]
    return Contributions(start, wanted, landings)


def _sent(schedule: Schedule, index: int) -> Sent:
    columns = (schedule.rank, schedule.channel, schedule.step, schedule.peer, schedule.chunk, schedule.count)
    src, channel, step, dst, chunk, count = (int(column[index]) for column in columns)
    return src, channel, step, dst, chunk, count


def _cells(run: SymbolicRun, rank: int, operation: Operation) -> list[Cell]:
    """Return the chunks that an operation has written, with their contributors. Scratch chunks are omitted."""
    last = min(operation.into + operation.count, run.schedule.chunks)
    return [(rank, chunk, run.who[rank][chunk]) for chunk in range(operation.into, last)]


def _leave(
    run: SymbolicRun, rank: int, operation: Operation, after: LandedMessage | None, start: Sequence[list[int]]
) -> None:
    """Record the chunks that a local operation wrote in ``after``, or in ``start`` if ``after`` is None."""
    cells = _cells(run, rank, operation)
    if after is not None:
        after.after += cells
    else:
        for _, chunk, contributors in cells:
            start[rank][chunk] = contributors


DISTINCT_RANKS = 16  # for more ranks, contributors are counted
COMPLETE = 1 << 30  # a flag next to the contributors: the chunk is as the collective promises


@dataclass(frozen=True)
class Buffers:
    """The contributors to each rank's chunks over time, as arrays of changes.

    With up to ``DISTINCT_RANKS`` ranks, the contributors to a chunk are a bit mask. With more ranks, they are a count.
    """

    chunks: int
    is_exact: bool
    start: Ints  # [world_size * chunks]
    wanted: Ints  # [world_size * chunks], 0 where the collective promises nothing
    message: Ints  # [changes]: which message changes a cell when it ends
    cell: Ints  # [changes]: rank * chunks + chunk
    value: Ints  # [changes]
    carried: Ints  # what each message carries, chunk by chunk, one message after the other


def follow_buffers(trace: Trace) -> Buffers | None:
    """Return the buffer contents over time, or None if they cannot be determined.

    The contents are unknown for training runs, for more than 64 ranks, for unknown algorithms, and if the messages do
    not match the algorithm. Known contents depend only on which send matches which receive, not on the times of
    messages.
    """
    contributions, messages = _contributions(trace), trace.messages
    if contributions is None:
        return None
    encode, chunks = _Encoder(contributions.wanted, trace.world_size), len(contributions.wanted[0])
    columns = (messages.src, messages.channel, messages.step, messages.dst, messages.chunk, messages.count)
    landings = [contributions.landings.get(key) for key in zip(*(column.tolist() for column in columns), strict=True)]
    if None in landings:
        return None  # the messages belong to another program
    known = [landing for landing in landings if landing is not None]
    carried = [
        encode(landing.rank, landing.into + at, bits) for landing in known for at, bits in enumerate(landing.carried)
    ]
    message, cell, value = _changes(messages, known, encode, chunks)
    start = [
        encode(rank, chunk, bits) for rank, row in enumerate(contributions.start) for chunk, bits in enumerate(row)
    ]
    wanted = [encode.shown(bits) for row in contributions.wanted for bits in row]
    return Buffers(
        chunks=chunks,
        is_exact=encode.is_exact,
        start=np.array(start),
        wanted=np.array(wanted),
        message=message,
        cell=cell,
        value=value,
        carried=np.array(carried, np.int64),
    )


def _changes(messages: Messages, landings: Sequence[LandedMessage], encode: "_Encoder", chunks: int) -> Ints:
    """Return the changes of the buffers in time order, as rows of message indices, cell indices and new values.

    If several messages of one step are reduced into a cell, the change happens when the last one arrives.
    """
    latest: dict[tuple[int, ...], tuple[float, int, int]] = {}
    channels, ends = messages.channel.tolist(), messages.end.tolist()
    for index, landing in enumerate(landings):
        for rank, chunk, bits in landing.after:
            key = (rank, channels[index], landing.step, chunk)
            if key not in latest or latest[key][0] <= ends[index]:
                latest[key] = (ends[index], index, encode(rank, chunk, bits))
    changes = [(end, index, key[0] * chunks + key[3], value) for key, (end, index, value) in latest.items()]
    rows = [change[1:] for change in sorted(changes, key=lambda change: change[:2])]
    return np.array(rows, np.int64).reshape(-1, 3).T


class _Encoder:
    """Encodes the contributors to a chunk as an integer. It has the flag ``COMPLETE`` if the contents are final."""

    def __init__(self, wanted: list[list[int]], world_size: int) -> None:
        self.wanted = wanted
        self.is_exact = world_size <= DISTINCT_RANKS

    def __call__(self, rank: int, chunk: int, bits: int) -> int:
        """Return the integer for a chunk's contributors. Scratch chunks never have the flag ``COMPLETE``."""
        row = self.wanted[rank]
        is_complete = chunk < len(row) and bits == row[chunk] != 0
        return self.shown(bits) | (COMPLETE if is_complete else 0)

    def shown(self, bits: int) -> int:
        return bits if self.is_exact else bits.bit_count()


def _contributions(trace: Trace) -> Contributions | None:
    """Return which ranks contribute to each chunk in a trace's program, up to its failure.

    Return None if the contributions are unknown. A trace without a program may come from an untrusted file, so only the
    names of library algorithms are looked up.
    """
    # buffers of more ranks would be too small to see
    if trace.title.startswith("training/") or trace.world_size > 64:
        return None  # each sync of a training begins with other gradients
    try:
        name, program = trace.algorithm or trace.title, trace.program
        if program is None and name.partition("[")[0] in library():
            program = find_algorithm(name)
        if program is None:
            return None
        if trace.failure is None:
            return follow_contributions(build_schedule(program, trace.world_size, trace.root))
        failure = trace.failure
        sound = sound_schedule(program, trace.world_size, trace.root, failure.rank, failure.steps)
        return follow_wrong_contributions(sound)
    except (InputError, ProgramError):
        return None
