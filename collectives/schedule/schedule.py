"""Define schedules: the operations of all ranks of an algorithm as arrays, with sends and receives matched."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from collectives.checks import check_ranks
from collectives.declaration import Algorithm, check_applies
from collectives.errors import InputError, ProgramError
from collectives.programs.limits import MOST_STEPS
from collectives.step import Kind, Operation, Step, offset
from collectives.symbolic_rank import VectorRank


@dataclass(frozen=True)
class ProgramCall:
    """An algorithm with a world size, a root, and the numbers of chunks. It is the base class of all schedules."""

    algorithm: Algorithm
    world_size: int
    root: int
    chunks: int
    scratch: int

    @property
    def total(self) -> int:
        return self.chunks + self.scratch

    def describe(self) -> str:
        """Return the start of an error message, such as ``broadcast/naive, world size 4, root 1``."""
        root = f", root {self.root}" if self.algorithm.spec.rooted else ""
        return f"{self.algorithm.full_name}, world size {self.world_size}{root}"

    def at_line(self, rank: int, channel: int, step: int) -> str:
        """Return text such as `` (line 9 of my.py)``, the line that yields a step, or "" if the line is unknown."""
        line = self.algorithm.find_line((rank, channel, step), self.world_size, self.root)
        return f" ({line})" if line else ""

    def run(self, rank: Any) -> tuple[Iterator[Step], ...]:
        """Return one iterator for each channel, over its steps. ``rank`` is a number or a symbolic rank.

        Raise InputError if the function returns no generators. An iterator raises InputError after too many steps.
        """
        channels = self.algorithm.channels(rank, self.world_size, self.root)
        return tuple(_limit_steps(steps) for steps in channels)

    def run_alone(self, rank: int) -> tuple[Iterator[Step], ...]:
        """Return the iterators of ``rank`` without also running the other ranks of a user's program, unlike ``run``."""
        return self.run(VectorRank(np.array([rank])) if self.algorithm.source else rank)


def _limit_steps(steps: Iterator[Step]) -> Iterator[Step]:
    for number, step in enumerate(steps):
        if number == MOST_STEPS:
            raise InputError(f"the program does not end: it yields more than {MOST_STEPS} steps")
        yield step


def make_call(algorithm: Algorithm, world_size: int, root: int = 0) -> ProgramCall:
    """Return a ProgramCall: the algorithm with its numbers of chunks for ``world_size`` ranks.

    Raise InputError for an invalid world size or root. If each rank has its own part of the buffer, also raise
    InputError unless the number of chunks is a multiple of the world size.
    """
    check_ranks(world_size, root)
    check_applies(algorithm, root=root != 0)
    call = ProgramCall(algorithm, world_size, root, algorithm.chunks(world_size), algorithm.scratch(world_size))
    if algorithm.spec.has_parts and call.chunks % world_size:
        line = algorithm.find_line(None, world_size, root)
        raise InputError(
            f"{call.describe()}: the number of chunks must be a multiple of the {world_size} ranks, "
            f"not {call.chunks}{line and f' ({line})'}"
        )
    return call


Ints = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]


class OperationColumns(NamedTuple):
    """The operations of some ranks as arrays. Each array has one entry per operation.

    The operations of a step are adjacent, in the order in which the program yields them.
    """

    rank: Ints
    channel: Ints
    step: Ints
    kind: Ints
    peer: Ints
    chunk: Ints
    count: Ints  # type: ignore[assignment]  # hides tuple.count, which nobody needs
    into: Ints
    match: Ints  # index of the matching operation; -1 for local operations

    def head(self, number: int) -> "OperationColumns":
        return OperationColumns._make([*(column[:number] for column in self[:-1]), np.full(number, -1, np.int32)])


@dataclass(frozen=True, repr=False)
class StepTable(ProgramCall):
    """A schedule that consists of arrays only. Its operations are ordered by step, then rank, then channel."""

    columns: OperationColumns

    def __repr__(self) -> str:
        return f"<StepTable {self.describe()}: {self.messages} messages>"

    @property
    def messages(self) -> int:
        return int(np.count_nonzero(self.columns.kind == Kind.SEND))

    @property
    def channels(self) -> int:
        return int(self.columns.channel.max(initial=0)) + 1

    @property
    def steps(self) -> int:
        return int(self.columns.step.max(initial=-1)) + 1

    def table(self) -> "StepTable":
        return self


class OperationBlock(NamedTuple):
    """The operations of one or more channels, on ranks that have the same sequence of steps.

    In two-dimensional arrays, each row is an operation and each column is a rank.
    """

    rank: Ints  # [ranks]
    channel: Ints  # [rows]
    step: Ints  # [rows], ascending
    kind: Ints  # [rows]
    fields: tuple[Ints, Ints, Ints, Ints]  # peer, chunk, count, into; each [rows, ranks]


def runs_of_steps(step: Ints) -> list[tuple[slice, int]]:
    """Return (slice, operations per step) for each run of consecutive steps that have equally many operations.

    ``step`` contains the step of each operation, and the slice selects the operations of the run.
    """
    starts = np.flatnonzero(np.append(True, np.diff(step) != 0)) if len(step) else np.zeros(0, np.int64)
    heights = np.diff(np.append(starts, len(step)))
    changes = np.flatnonzero(np.append(True, np.diff(heights) != 0)) if len(heights) else heights
    ends = np.append(starts, len(step))[np.append(changes, len(heights))].tolist()
    return [(slice(a, b), int(heights[c])) for a, b, c in zip(ends[:-1], ends[1:], changes.tolist(), strict=True)]


def order_by_step(matrix: npt.NDArray[Any], runs: Sequence[tuple[slice, int]]) -> npt.NDArray[Any]:
    """Flatten an array [operations, ranks] into an array that is ordered by step, then rank, then operation.

    ``runs`` is the result of ``runs_of_steps``.
    """
    ranks = matrix.shape[1]
    parts = [matrix[rows].reshape(-1, height, ranks).transpose(0, 2, 1).reshape(-1) for rows, height in runs]
    return np.concatenate(parts) if parts else np.zeros(0, matrix.dtype)


def merge_blocks(blocks: Sequence[OperationBlock]) -> OperationColumns:
    """Return the operations of all blocks, ordered by step, rank and channel. They are not matched yet."""
    parts: list[list[npt.NDArray[Any]]] = []
    for block in blocks:
        runs, shape = runs_of_steps(block.step), (len(block.step), len(block.rank))
        same = [np.broadcast_to(block.rank, shape)] + [np.broadcast_to(row[:, None], shape) for row in block[1:4]]
        parts.append([order_by_step(matrix, runs) for matrix in [*same, *block.fields]])
    joined = [np.concatenate(column) for column in zip(*parts, strict=True)]
    if len(blocks) > 1:
        order = np.lexsort((joined[1], joined[0], joined[2]))
        joined = [column[order] for column in joined]
    return OperationColumns._make([*joined, np.full(len(joined[0]), -1, np.int32)])


def columns_by_step(operations: Ints) -> OperationColumns:
    """Return an array [operations, 8] as columns, ordered by step, rank and channel. Messages are not matched yet."""
    rank, channel, step = operations.T[:3]
    ordered = operations[np.lexsort((channel, rank, step))].T.copy()
    return OperationColumns._make([*ordered, np.full(len(rank), -1, np.int32)])


@dataclass(frozen=True, repr=False)
class Schedule(ProgramCall):
    """The operations of all ranks, ordered by rank, channel and step. Each array has one entry per operation."""

    programs: tuple[tuple[tuple[Step, ...], ...], ...]  # [rank][channel][step], as yielded
    rank: Ints
    channel: Ints
    step: Ints
    kind: Ints
    peer: Ints
    chunk: Ints
    count: Ints
    into: Ints
    match: Ints  # index of the matching operation; -1 for local operations

    def __repr__(self) -> str:
        return f"<Schedule {self.describe()}: {self.messages} messages>"

    @property
    def steps(self) -> int:
        """The maximum number of steps in a channel."""
        return max((len(program) for channels in self.programs for program in channels), default=0)

    @property
    def channels(self) -> int:
        """The maximum number of channels of a rank."""
        return max(map(len, self.programs))

    @property
    def ports(self) -> int:
        """The maximum number of ranks that a rank sends to, or receives from, at the same time."""
        return max(self._at_once(self.kind == Kind.SEND), self._at_once((self.kind != Kind.SEND) & (self.peer >= 0)))

    def _at_once(self, chosen: npt.NDArray[np.bool_]) -> int:
        shape = (self.world_size, self.channels, self.steps + 1)
        step = np.ravel_multi_index((self.rank[chosen], self.channel[chosen], self.step[chosen]), shape)
        pairs = step * self.world_size + self.peer[chosen]
        meetings, _ = np.unique(pairs, return_counts=True)  # without counts, numpy imports numpy.ma
        met = meetings // self.world_size
        return int(np.bincount(met, minlength=prod(shape)).reshape(shape).max(axis=2).sum(axis=1).max())

    @property
    def messages(self) -> int:
        """The number of messages. Messages without data are included."""
        return int(np.count_nonzero(self.kind == Kind.SEND))

    def elements_sent(self, n: int) -> npt.NDArray[np.int64]:
        """Return the number of elements that each rank sends if the buffer has ``n`` elements; shape [world_size]."""
        sends = self.kind == Kind.SEND
        first, last = self.chunk[sends].astype(np.int64), (self.chunk + self.count)[sends].astype(np.int64)
        sizes = offset(last, n, self.chunks) - offset(first, n, self.chunks)
        return np.bincount(self.rank[sends], weights=sizes, minlength=self.world_size).astype(np.int64)

    @property
    def columns(self) -> OperationColumns:
        return OperationColumns._make(getattr(self, name) for name in OperationColumns._fields)

    def table(self) -> StepTable:
        order = np.lexsort((self.channel, self.rank, self.step))
        position = np.empty(len(order) + 1, np.int32)
        position[order], position[-1] = np.arange(len(order), dtype=np.int32), -1
        columns = OperationColumns._make(column[order] for column in self.columns)
        columns = columns._replace(match=position[columns.match])  # -1 selects the last entry, which is -1
        return StepTable(self.algorithm, self.world_size, self.root, self.chunks, self.scratch, columns)

    def operation(self, index: int) -> Operation:
        numbers = (int(column[index]) for column in (self.peer, self.chunk, self.count, self.into))
        return Operation(Kind(int(self.kind[index])), *numbers)

    def location(self, index: int) -> str:
        """Return the location of an operation as text, such as ``all_reduce/ring, world size 4, rank 1, step 2``."""
        location = f"{self.describe()}, rank {self.rank[index]}{self.on_channel(index)}, step {self.step[index]}"
        return location + self.line(index)

    def line(self, index: int) -> str:
        return self.at_line(int(self.rank[index]), int(self.channel[index]), int(self.step[index]))

    def on_channel(self, index: int) -> str:
        return f", channel {self.channel[index]}" if self.channels > 1 else ""

    def refuse(self, index: int, problem: str, lands: bool = False) -> ProgramError:
        """Return a ProgramError with the location of an operation. ``lands`` is True if the operation completes."""
        rank, step = int(self.rank[index]), int(self.step[index])
        return ProgramError(
            f"{self.location(index)}: {self.operation(index)}{problem}", self.world_size, rank, step, lands
        )
