"""What all ranks say, traced into arrays once, every send beside the receive it meets."""

from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from collectives.catalogue import Algorithm
from collectives.errors import InputError
from collectives.step import Kind, Operation, Step

Ints = npt.NDArray[np.int32]


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
    if not 0 <= root < world_size:
        raise InputError(f"root {root} is not one of the ranks 0..{world_size - 1}")
    chunks, scratch = algorithm.chunks(world_size), algorithm.scratch(world_size)
    programs = []
    for rank in range(world_size):
        check = _StepCheck(algorithm, rank, world_size, chunks, scratch)
        programs.append(tuple(check(number, step) for number, step in enumerate(_steps(algorithm, rank, world_size, root))))
    rows = [(r, s, *op) for r, program in enumerate(programs) for s, step in enumerate(program) for op in step]
    columns = np.array(rows, dtype=np.int32).reshape(-1, 7).T.copy()
    unmatched = np.full(len(rows), -1, dtype=np.int32)
    schedule = Schedule(algorithm, world_size, root, chunks, scratch, tuple(programs), *columns, match=unmatched)
    return replace(schedule, match=_match(schedule))


def _steps(algorithm: Algorithm, rank: int, world_size: int, root: int) -> list[Step]:
    try:
        return list(algorithm.steps(rank, world_size, root))
    except InputError:
        raise
    except Exception as error:
        where = f"{algorithm.full_name}, world size {world_size}, rank {rank}"
        raise ProgramError(f"{where}: the program fails with {type(error).__name__}: {error}", world_size, rank) from error


@dataclass(frozen=True)
class _StepCheck:
    """Whether the operations of a step make sense on their own, before any are matched."""

    algorithm: Algorithm
    rank: int
    world_size: int
    chunks: int
    scratch: int

    def __call__(self, number: int, step: Step) -> Step:
        written: set[int] = set()
        for op in step:
            problem = self._problem(op)
            if problem is None and not written.isdisjoint(op.target):
                problem = f"chunk {min(written.intersection(op.target))} is written twice in one step"
            if problem is not None:
                where = f"{self.algorithm.full_name}, world size {self.world_size}, rank {self.rank}, step {number}"
                raise ProgramError(f"{where}: {op}: {problem}", self.world_size, self.rank, number)
            written.update(op.target)
        return step

    def _problem(self, op: Operation) -> str | None:
        if not isinstance(op, Operation):
            return "a step holds only send, recv, recv_reduce, copy and reduce"
        if op.count < 1:
            return "count must be at least 1"
        if not op.kind.is_local and not 0 <= op.peer < self.world_size:
            return f"there is no rank {op.peer}; ranks are 0..{self.world_size - 1}"
        if op.peer == self.rank:
            return "a rank never sends to itself; use copy or reduce"
        for chunks in (op.source, op.target):
            problem = self._range_problem(chunks)
            if problem is not None:
                return problem
        return None

    def _range_problem(self, chunks: range) -> str | None:
        total = self.chunks + self.scratch
        if chunks and not 0 <= chunks[0] <= chunks[-1] < total:
            outside = chunks[0] if chunks[0] < 0 else chunks[-1]
            return f"there is no chunk {outside}; chunks are 0..{total - 1} ({self.scratch} of them scratch)"
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
    """Raise ProgramError unless every send from src to dst meets a receive of the same size."""
    for k, (one, other) in enumerate(zip(sends, receives, strict=False)):
        if not _same_size(schedule, one, other):
            raise ProgramError(
                f"{_at(schedule, one)}: {operation(schedule, one)} meets, as message {k} from rank {src} to rank {dst}, "
                f"{operation(schedule, other)} of rank {dst}, step {schedule.step[other]}: their sizes differ",
                schedule.world_size, src, int(schedule.step[one]),
            )  # fmt: skip
    if len(sends) != len(receives):
        short = min(len(sends), len(receives))
        lonely = (sends if len(sends) > len(receives) else receives)[short]
        raise ProgramError(
            f"{_at(schedule, lonely)}: {operation(schedule, lonely)} meets nothing: rank {src} sends {len(sends)} "
            f"messages to rank {dst}, which receives {len(receives)} from it",
            schedule.world_size, int(schedule.rank[lonely]), int(schedule.step[lonely]),
        )  # fmt: skip


def _same_size(schedule: Schedule, one: int, other: int) -> bool:
    """Equal for every length of the buffer: as many chunks, and the same ones but for whole buffers between them."""
    count, distance = int(schedule.count[one]), int(schedule.chunk[one]) - int(schedule.into[other])
    same_chunks = distance % schedule.chunks == 0 or count % schedule.chunks == 0
    return count == int(schedule.count[other]) and same_chunks


def _at(schedule: Schedule, index: int) -> str:
    return (
        f"{schedule.algorithm.full_name}, world size {schedule.world_size}, "
        f"rank {schedule.rank[index]}, step {schedule.step[index]}"
    )
