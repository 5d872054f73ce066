"""What all ranks say, traced into arrays once, every send beside the receive it meets."""

from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from collectives.catalogue import Algorithm, describe
from collectives.errors import InputError
from collectives.step import Kind, Operation, Step, same_place

Ints = npt.NDArray[np.int32]
OTHER_PLACE = "these are different chunks of the buffer; data keeps its place"
MOST_STEPS = 1_000_000  # of one rank; a program that yields more is taken to be endless


class ProgramError(InputError):
    """A rank program that cannot work. Names the rank, step and operation; ``world_size`` is the one it fails at."""

    def __init__(self, message: str, world_size: int, rank: int | None = None, step: int | None = None) -> None:
        super().__init__(message)
        self.world_size, self.rank, self.step = world_size, rank, step


@dataclass(frozen=True)
class Schedule:
    """Every operation of every rank, rank by rank and step by step; one entry of each array an operation."""

    algorithm: Algorithm
    world_size: int
    root: int
    chunks: int
    scratch: int
    programs: tuple[tuple[Step, ...], ...]  # [rank][step], as yielded
    rank: Ints
    step: Ints
    kind: Ints
    peer: Ints
    chunk: Ints
    count: Ints
    into: Ints
    match: Ints  # index of the operation at the other end; -1 for local ones

    @property
    def steps(self) -> int:
        """Steps of the rank that has most."""
        return max((len(program) for program in self.programs), default=0)

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


def trace(algorithm: Algorithm, world_size: int, root: int = 0) -> Schedule:
    """Run the program of every rank and match its messages.

    Raises ProgramError for an operation that is out of range, a chunk written twice in a step, a message with one
    end only, or two ends that disagree on size.
    """
    if world_size < 1:
        raise InputError(f"world size {world_size}: at least one rank is needed")
    if not 0 <= root < world_size:
        raise InputError(f"root {root} is not one of the ranks 0..{world_size - 1}")
    chunks, scratch = algorithm.chunks(world_size), algorithm.scratch(world_size)
    programs = tuple(
        _program(algorithm, root, _RankCheck(rank, world_size, chunks, scratch)) for rank in range(world_size)
    )
    rank, step, kind, peer, chunk, count, into = _columns(programs)
    unmatched = np.full(len(rank), -1, dtype=np.int32)
    schedule = Schedule(
        algorithm, world_size, root, chunks, scratch, programs, rank, step, kind, peer, chunk, count, into, unmatched
    )
    return replace(schedule, match=_match(schedule))


def _columns(programs: tuple[tuple[Step, ...], ...]) -> Ints:
    """One row of numbers for each field; shape [7, operations]."""
    rows = [
        (rank, number, op.kind, op.peer, op.chunk, op.count, op.into)
        for rank, program in enumerate(programs)
        for number, step in enumerate(program)
        for op in step
    ]
    return np.array(rows, dtype=np.int32).reshape(-1, 7).T.copy()


def setting(algorithm: Algorithm, world_size: int, root: int) -> str:
    """How messages begin: ``broadcast/naive, world size 4, root 1``."""
    return f"{algorithm.full_name}, world size {world_size}" + (f", root {root}" if algorithm.spec.rooted else "")


def _program(algorithm: Algorithm, root: int, check: "_RankCheck") -> tuple[Step, ...]:
    """The steps of one rank, each checked on its own. Raises ProgramError that names the step."""
    program: list[Step] = []
    try:
        for step in algorithm.steps(check.rank, check.world_size, root):
            if len(program) == MOST_STEPS:
                raise InputError(f"the program does not end: it yields more than {MOST_STEPS} steps")
            check(step)
            program.append(step)
    except Exception as error:
        problem = f"the program fails with {describe(error, algorithm.source)}"
        raise ProgramError(
            f"{setting(algorithm, check.world_size, root)}, rank {check.rank}, step {len(program)}: "
            f"{error if isinstance(error, InputError) else problem}",
            check.world_size, check.rank, len(program),
        ) from error  # fmt: skip
    return tuple(program)


@dataclass(frozen=True)
class _RankCheck:
    """Whether the operations of a step make sense on their own, before any are matched."""

    rank: int
    world_size: int
    chunks: int
    scratch: int

    def __call__(self, step: Step) -> None:
        """Raise InputError that names the first operation which does not."""
        written: set[int] = set()
        for op in step:
            self._check_numbers(op)
            problem = self._problem(op)
            if problem is None and not written.isdisjoint(op.target):
                problem = f"chunk {min(written.intersection(op.target))} is written twice in one step"
            if problem is not None:
                raise InputError(f"{op}: {problem}")
            written.update(op.target)

    def _check_numbers(self, op: Operation) -> None:
        numbers: tuple[object, ...] = (op.peer, op.chunk, op.count, op.into)  # a user's program may yield anything
        for number in numbers:
            if not isinstance(number, int | np.integer):
                name = op.kind.name.lower()
                raise InputError(
                    f"{name}: {number!r} is no whole number; peers, chunks and counts are (divide with //)"
                )

    def _problem(self, op: Operation) -> str | None:
        if op.count < 1:
            return "count must be at least 1"
        if not op.kind.is_local and not 0 <= op.peer < self.world_size:
            return f"there is no rank {op.peer}; ranks are 0..{self.world_size - 1}"
        if op.peer == self.rank:
            return "a rank never sends to itself; use copy or reduce"
        if op.kind.is_local and not same_place(op.chunk, op.into, self.chunks):
            return OTHER_PLACE
        return self._range_problem(op.source) or self._range_problem(op.target)

    def _range_problem(self, chunks: range) -> str | None:
        total = self.chunks + self.scratch
        if chunks and not 0 <= chunks[0] <= chunks[-1] < total:
            outside = chunks[0] if chunks[0] < 0 else chunks[-1]
            scratch = f", the last {self.scratch} of them scratch" if self.scratch else ""
            return f"there is no chunk {outside}; chunks are 0..{total - 1}{scratch}"
        if chunks and chunks[0] < self.chunks <= chunks[-1]:
            return "its chunks begin in the buffer and end in the scratch"
        return None


def _match(schedule: Schedule) -> Ints:
    """For each operation the one at its other end: the k-th send from a to b meets the k-th receive at b from a."""
    sends: dict[tuple[int, int], list[int]] = defaultdict(list)
    receives: dict[tuple[int, int], list[int]] = defaultdict(list)
    for index, (kind, rank, peer) in enumerate(
        zip(schedule.kind.tolist(), schedule.rank.tolist(), schedule.peer.tolist(), strict=True)
    ):
        if kind == Kind.SEND:
            sends[rank, peer].append(index)
        elif peer >= 0:
            receives[peer, rank].append(index)
    match = schedule.match.copy()
    for pair in sorted(sends.keys() | receives.keys()):
        ends = sends[pair], receives[pair]
        _check_pair(schedule, *pair, *ends)
        match[ends[0]], match[ends[1]] = ends[1], ends[0]
    return match


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
                f"{_at(schedule, one)}: {operation(schedule, one)}, message {k} of rank {src} to rank {dst}, meets in "
                f"its step {schedule.step[other]} {operation(schedule, other)}: {problem}",
                schedule.world_size, src, int(schedule.step[one]),
            )  # fmt: skip
    if len(sends) != len(receives):
        short = min(len(sends), len(receives))
        lonely = (sends if len(sends) > len(receives) else receives)[short]
        raise ProgramError(
            f"{_at(schedule, lonely)}: {operation(schedule, lonely)} meets nothing: rank {src} sends "
            f"{_messages(len(sends))} to rank {dst}, which receives {len(receives)} from it",
            schedule.world_size, int(schedule.rank[lonely]), int(schedule.step[lonely]),
        )  # fmt: skip


def _difference(schedule: Schedule, one: int, other: int) -> str | None:
    """In what a send and the receive that it meets disagree."""
    if schedule.count[one] != schedule.count[other]:
        return "they disagree on how many chunks travel"
    if not same_place(int(schedule.chunk[one]), int(schedule.into[other]), schedule.chunks):
        return OTHER_PLACE
    return None


def _messages(number: int) -> str:
    return {0: "no message", 1: "1 message"}.get(number, f"{number} messages")


def _at(schedule: Schedule, index: int) -> str:
    where = setting(schedule.algorithm, schedule.world_size, schedule.root)
    return f"{where}, rank {schedule.rank[index]}, step {schedule.step[index]}"
