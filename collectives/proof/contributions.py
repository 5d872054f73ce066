"""Whose data each message of a program carries, and what it leaves where it lands: for pictures of the buffers."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import or_

from collectives.errors import Deadlock
from collectives.proof.completion import Completed, completion_order
from collectives.proof.verifier import SymbolicRun
from collectives.schedule.schedule import Schedule
from collectives.step import Kind, Operation

Sent = tuple[int, int, int, int, int, int]  # src, channel, step of the sender, dst, first chunk, count
Cell = tuple[int, int, int]  # rank, chunk, contributors


@dataclass
class LandedMessage:
    """What one message carries and leaves; contributors are the bits of their ranks."""

    rank: int
    step: int  # of the receiver
    into: int
    carried: list[int]  # contributors of each of its chunks
    after: list[Cell]  # cells that are no longer what they were, once it and local work after it are done


@dataclass(frozen=True)
class Contributions:
    """Who contributed to each chunk of each rank at the start, in the end, and by each message."""

    start: list[list[int]]  # [rank][chunk], scratch left out
    wanted: list[list[int]]  # [rank][chunk]: what the collective promises; 0 where it promises nothing
    landings: dict[Sent, LandedMessage]


def follow_contributions(schedule: Schedule) -> Contributions:
    """Run a schedule symbolically, as its proof does, and return who contributed to what. Raises ProgramError.

    >>> from collectives import find_algorithm
    >>> from collectives.schedule.build import build_schedule
    >>> follow_contributions(build_schedule(find_algorithm("reduce/naive"), 2)).landings
    {(1, 0, 0, 0, 0, 1): LandedMessage(rank=0, step=0, into=0, carried=[2], after=[(0, 0, 3)])}
    """
    return _follow(SymbolicRun(schedule), completion_order(schedule))


def follow_wrong_contributions(schedule: Schedule) -> Contributions:
    """Return what ``follow_contributions`` does of a program that is wrong, as far as its steps complete.

    A message whose step at the receiver never completes carries what it carries, and leaves nothing.
    """
    run = _UnjudgedRun(schedule)
    found = _follow(run, _until_a_deadlock(schedule))
    for index, (carried, _) in run.in_flight.items():
        sent = schedule.operation(index)
        found.landings[_sent(schedule, index)] = LandedMessage(sent.peer, 0, sent.chunk, list(carried), [])
    return found


class _UnjudgedRun(SymbolicRun):
    """A symbolic run that goes on where chunks are empty, of other data, or count twice."""

    def _read(self, rank: int, index: int, op: Operation) -> tuple[list[int], list[int]]:
        chunks = slice(op.chunk, op.chunk + op.count)
        return self.who[rank][chunks], self.origin[rank][chunks]

    def _reduce(self, rank: int, index: int, op: Operation, values: list[int], origins: list[int]) -> list[int]:
        return [*map(or_, self.who[rank][op.into : op.into + op.count], values)]


def _until_a_deadlock(schedule: Schedule) -> Iterator[Completed]:
    with suppress(Deadlock):
        yield from completion_order(schedule)


def _follow(run: SymbolicRun, order: Iterable[Completed]) -> Contributions:
    """Complete steps in this order, and return who contributed to what."""
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
            found = landings[_sent(schedule, sent)] = LandedMessage(rank, step, operation.into, list(carried), [])
            found.after += _cells(run, rank, operation)
            last[rank, channel] = found
        for _, operation in operations:
            if operation.kind in (Kind.COPY, Kind.REDUCE):
                _leave(run, rank, operation, last.get((rank, channel)), start)
    return Contributions(start, [_wanted(run, rank) for rank in range(schedule.world_size)], landings)


def _sent(schedule: Schedule, index: int) -> Sent:
    columns = (schedule.rank, schedule.channel, schedule.step, schedule.peer, schedule.chunk, schedule.count)
    src, channel, step, dst, chunk, count = (int(column[index]) for column in columns)
    return src, channel, step, dst, chunk, count


def _cells(run: SymbolicRun, rank: int, operation: Operation) -> list[Cell]:
    """Return the cells that an operation has written, scratch left out."""
    last = min(operation.into + operation.count, run.schedule.chunks)
    return [(rank, chunk, run.who[rank][chunk]) for chunk in range(operation.into, last)]


def _leave(
    run: SymbolicRun, rank: int, operation: Operation, after: LandedMessage | None, start: Sequence[list[int]]
) -> None:
    """Note what a local operation wrote as left by the last message before it; before any, as there from the start."""
    cells = _cells(run, rank, operation)
    if after is not None:
        after.after += cells
    else:
        for _, chunk, contributors in cells:
            start[rank][chunk] = contributors


def _wanted(run: SymbolicRun, rank: int) -> list[int]:
    """Return the contributors that the collective promises, chunk by chunk."""
    parts = run.parts(run.spec.end, rank)
    chunks = run.schedule.chunks
    return [parts[chunk * run.schedule.world_size // chunks] for chunk in range(chunks)]
