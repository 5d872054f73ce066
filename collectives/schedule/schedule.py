"""What all ranks say, traced into arrays once, every send beside the receive it meets."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

import numpy as np
import numpy.typing as npt

from collectives.declaration import Algorithm
from collectives.errors import InputError, ProgramError, Undefined, describe_error
from collectives.schedule.rules import OTHER_PLACE, RankCheck, check_apart
from collectives.step import Kind, Operation, Step, same_place

Ints = npt.NDArray[np.int32]
SEND = int(Kind.SEND)
MOST_STEPS = 1_000_000  # of one rank; a program that yields more is taken to be endless


@dataclass(frozen=True)
class Schedule:
    """Every operation of every rank: by rank, channel and step. Each array has one entry for each operation."""

    algorithm: Algorithm
    world_size: int
    root: int
    chunks: int
    scratch: int
    programs: tuple[tuple[tuple[Step, ...], ...], ...]  # [rank][channel][step], as yielded
    rank: Ints
    channel: Ints
    step: Ints
    kind: Ints
    peer: Ints
    chunk: Ints
    count: Ints
    into: Ints
    match: Ints  # index of the operation at the other end; -1 for local ones

    @property
    def steps(self) -> int:
        """Steps of the channel that has most."""
        return max((len(program) for channels in self.programs for program in channels), default=0)

    @property
    def channels(self) -> int:
        """Channels of the rank that has most."""
        return max(map(len, self.programs))

    @property
    def ports(self) -> int:
        """The most ranks that a rank sends to at the same time, or receives from, whichever is more."""
        return max(self._at_once(self.kind == SEND), self._at_once((self.kind != SEND) & (self.peer >= 0)))

    def _at_once(self, chosen: npt.NDArray[np.bool_]) -> int:
        """Of the chosen messages the most peers in a step of each channel, over the channels of one rank."""
        shape = (self.world_size, self.channels, self.steps + 1)
        step = np.ravel_multi_index((self.rank[chosen], self.channel[chosen], self.step[chosen]), shape)
        met = np.unique(step * self.world_size + self.peer[chosen]) // self.world_size
        return int(np.bincount(met, minlength=prod(shape)).reshape(shape).max(axis=2).sum(axis=1).max())

    @property
    def messages(self) -> int:
        """How many messages there are, empty ones included."""
        return int(np.count_nonzero(self.kind == Kind.SEND))

    def elements_sent(self, n: int) -> npt.NDArray[np.int64]:
        """Elements that each rank sends when the buffer holds ``n``; shape [world_size]."""
        sends = self.kind == Kind.SEND
        first, last = self.chunk[sends].astype(np.int64), (self.chunk + self.count)[sends].astype(np.int64)
        sizes = _offsets(last, n, self.chunks) - _offsets(first, n, self.chunks)
        return np.bincount(self.rank[sends], weights=sizes, minlength=self.world_size).astype(np.int64)


def _offsets(index: npt.NDArray[np.int64], n: int, chunks: int) -> npt.NDArray[np.int64]:
    whole, part = np.divmod(index, chunks)
    return np.asarray(whole * n + part * n // chunks, dtype=np.int64)


def build_schedule(algorithm: Algorithm, world_size: int, root: int = 0) -> Schedule:
    """Run the program of every rank and match its messages.

    Raises ProgramError for an operation that is out of range, a chunk written twice in a step, channels of a rank
    that touch the same chunk, a message with one end only, or two ends that disagree on size.
    """
    if world_size < 1:
        raise InputError(f"world size {world_size}: at least one rank is needed")
    if not 0 <= root < world_size:
        raise InputError(f"root {root} is not one of the ranks 0..{world_size - 1}")
    chunks, scratch = algorithm.chunks(world_size), algorithm.scratch(world_size)
    if algorithm.spec.has_parts and chunks % world_size:
        raise InputError(
            f"{setting(algorithm, world_size, root)}: it cuts the buffer into {chunks} chunk{'s' * (chunks > 1)}; "
            f"{algorithm.spec.name} needs a multiple of {world_size}, as each rank has a part of its own"
        )
    programs = tuple(
        _programs(algorithm, root, RankCheck(rank, world_size, chunks, scratch, algorithm.spec.moves))
        for rank in range(world_size)
    )
    columns = _columns(programs)
    rank, channel, step, kind, peer, chunk, count, into = columns
    said = (rank, channel, step, kind, peer, chunk, count, into, np.full_like(rank, -1))
    schedule = Schedule(algorithm, world_size, root, chunks, scratch, programs, *said)
    return replace(schedule, match=_match(schedule))


def _columns(programs: tuple[tuple[tuple[Step, ...], ...], ...]) -> Ints:
    """One row of numbers for each field; shape [8, operations]."""
    numbers: list[int] = []  # flat, which is quick
    for rank, channels in enumerate(programs):
        for channel, program in enumerate(channels):
            for number, step in enumerate(program):
                for op in step:
                    numbers += (rank, channel, number, op.kind, op.peer, op.chunk, op.count, op.into)
    return np.array(numbers, dtype=np.int32).reshape(-1, 8).T.copy()


def setting(algorithm: Algorithm, world_size: int, root: int) -> str:
    """How messages begin: ``broadcast/naive, world size 4, root 1``."""
    return f"{algorithm.full_name}, world size {world_size}" + (f", root {root}" if algorithm.spec.rooted else "")


def _programs(algorithm: Algorithm, root: int, check: RankCheck) -> tuple[tuple[Step, ...], ...]:
    """The programs of one rank, one a channel, every step checked on its own. Raises ProgramError that names it."""
    programs: list[list[Step]] = [[]]
    where = f"{setting(algorithm, check.world_size, root)}, rank {check.rank}"
    channel = ""
    try:
        returned = algorithm.channels(check.rank, check.world_size, root)
        for number, steps in enumerate(returned):
            channel = f", channel {number}" if len(returned) > 1 else ""
            programs[number:] = [[]]
            for step in _limited(steps):
                check(step)
                programs[number].append(step)
    except Undefined as error:
        raise Undefined(f"{setting(algorithm, check.world_size, root)}: {error}") from error
    except (Exception, SystemExit) as error:  # a program that calls sys.exit ends itself, not the command
        at = len(programs[-1])
        problem = str(error) if isinstance(error, InputError) else _failure(error, algorithm)
        raise ProgramError(f"{where}{channel}, step {at}: {problem}", check.world_size, check.rank, at) from error
    check_apart(programs, where, check)
    return tuple(tuple(program) for program in programs)


def _failure(error: BaseException, algorithm: Algorithm) -> str:
    return f"the program fails with {describe_error(error, algorithm.source)}"


def _limited(steps: Iterator[Step]) -> Iterator[Step]:
    for number, step in enumerate(steps):
        if number == MOST_STEPS:
            raise InputError(f"the program does not end: it yields more than {MOST_STEPS} steps")
        yield step


def _match(schedule: Schedule) -> Ints:
    """For each operation the one at its other end.

    The k-th send from a to b on a channel meets the k-th receive at b from a on it.
    """
    is_send, is_message = schedule.kind == SEND, schedule.peer >= 0
    src, dst = np.where(is_send, (schedule.rank, schedule.peer), (schedule.peer, schedule.rank)).astype(np.int64)
    way = (src * schedule.world_size + dst) * schedule.channels + schedule.channel
    sends, receives = (_in_order(way, chosen) for chosen in (is_send & is_message, ~is_send & is_message))
    match = schedule.match.copy()
    if np.array_equal(way[sends], way[receives]):
        match[sends], match[receives] = receives, sends
        if _agree(schedule, match):
            return match
    for number in np.union1d(way[sends], way[receives]).tolist():
        ends = ((way == number) & is_send).nonzero()[0], ((way == number) & ~is_send & is_message).nonzero()[0]
        a, b = divmod(number // schedule.channels, schedule.world_size)
        _check_pair(schedule, a, b, *(end.tolist() for end in ends))
    return match


def _in_order(way: npt.NDArray[np.int64], chosen: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """The chosen operations by way, those of one way as they come."""
    index = np.flatnonzero(chosen)
    return index[np.argsort(way[index], kind="stable")]


def _agree(schedule: Schedule, match: Ints) -> bool:
    """Whether every message has two ends that speak of as many chunks and of the same ones."""
    sends = schedule.kind == SEND
    other = match[sends]
    moved = (schedule.chunk[sends] - schedule.into[other]) % schedule.chunks != 0
    same = np.array_equal(schedule.count[sends], schedule.count[other])
    return same and (schedule.algorithm.spec.moves or not moved.any())


def operation(schedule: Schedule, index: int) -> Operation:
    """One operation of a schedule, as its program yielded it."""
    kind = Kind(int(schedule.kind[index]))
    return Operation(kind, *(int(a[index]) for a in (schedule.peer, schedule.chunk, schedule.count, schedule.into)))


def _check_pair(schedule: Schedule, src: int, dst: int, sends: list[int], receives: list[int]) -> None:
    """Raise ProgramError unless every send from src to dst meets a receive of the same chunks."""
    for k, (one, other) in enumerate(zip(sends, receives, strict=False)):
        problem = _difference(schedule, one, other)
        if problem is not None:
            raise ProgramError(
                f"{at(schedule, one)}: {operation(schedule, one)}, message {k} of rank {src} to rank {dst}, meets in "
                f"its step {schedule.step[other]} {operation(schedule, other)}: {problem}",
                schedule.world_size, src, int(schedule.step[one]),
            )  # fmt: skip
    if len(sends) != len(receives):
        short = min(len(sends), len(receives))
        lonely = (sends if len(sends) > len(receives) else receives)[short]
        raise ProgramError(
            f"{at(schedule, lonely)}: {operation(schedule, lonely)} meets nothing: rank {src} sends "
            f"{_messages(len(sends))} to rank {dst}{on_channel(schedule, lonely).replace(',', ' on')}, which receives "
            f"{len(receives)} from it",
            schedule.world_size, int(schedule.rank[lonely]), int(schedule.step[lonely]),
        )  # fmt: skip


def _difference(schedule: Schedule, one: int, other: int) -> str | None:
    """In what a send and the receive that it meets disagree."""
    if schedule.count[one] != schedule.count[other]:
        return "they disagree on how many chunks travel"
    moves = schedule.algorithm.spec.moves
    if not (moves or same_place(int(schedule.chunk[one]), int(schedule.into[other]), schedule.chunks)):
        return OTHER_PLACE
    return None


def _messages(number: int) -> str:
    return {0: "no message", 1: "1 message"}.get(number, f"{number} messages")


def at(schedule: Schedule, index: int) -> str:
    """``all_reduce/ring, world size 4, rank 1, step 2``: where an operation stands."""
    where = setting(schedule.algorithm, schedule.world_size, schedule.root)
    return f"{where}, rank {schedule.rank[index]}{on_channel(schedule, index)}, step {schedule.step[index]}"


def on_channel(schedule: Schedule, index: int) -> str:
    """``, channel 1``; nothing where there is only one."""
    return f", channel {schedule.channel[index]}" if schedule.channels > 1 else ""
