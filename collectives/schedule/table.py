"""The operations of a schedule as columns of numbers, and tables of them step by step."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from collectives.schedule.call import ProgramCall
from collectives.step import Kind

Ints = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]


class OperationColumns(NamedTuple):
    """The operations of some ranks; one entry of each array for each.

    They come in runs of one rank, channel and step each, a run in the order in which its step lists its operations.
    """

    rank: Ints
    channel: Ints
    step: Ints
    kind: Ints
    peer: Ints
    chunk: Ints
    count: Ints  # type: ignore[assignment]  # a tuple's count of an item is nothing that anyone asks for
    into: Ints
    match: Ints  # index of the operation at the other end; -1 for local ones

    def head(self, number: int) -> "OperationColumns":
        """Return the first ``number`` operations, unmatched."""
        return OperationColumns._make([*(column[:number] for column in self[:-1]), np.full(number, -1, np.int32)])

    def in_little_memory(self) -> "OperationColumns":
        """Return the same numbers in two thirds of the memory: small ones in small types, equal counts once.

        What is calculated of them must not be kept in those types.
        """
        small = {name: _small(getattr(self, name)) for name in ("channel", "step", "kind")}
        count = np.broadcast_to(self.count[:1], len(self.count)) if (self.count == self.count[:1]).all() else self.count
        return self._replace(**small, count=count)


def _small(column: Ints) -> npt.NDArray[np.signedinteger[Any]]:
    """Return numbers that are not negative in the smallest signed type."""
    most = int(column.max(initial=0))
    return column.astype(np.int8 if most < 1 << 7 else np.int16 if most < 1 << 15 else np.int32)


@dataclass(frozen=True, repr=False)
class StepTable(ProgramCall):
    """A schedule as arrays alone; its operations are ordered by step, then rank, then channel."""

    columns: OperationColumns

    def __repr__(self) -> str:
        return f"<StepTable {self.describe()}: {self.messages} messages>"

    @property
    def messages(self) -> int:
        """How many messages there are, empty ones included."""
        return int(np.count_nonzero(self.columns.kind == Kind.SEND))

    @property
    def channels(self) -> int:
        """Channels of the rank that has most."""
        return int(self.columns.channel.max(initial=0)) + 1

    @property
    def steps(self) -> int:
        """Steps of the channel that has most."""
        return int(self.columns.step.max(initial=-1)) + 1

    def table(self) -> "StepTable":
        """Return the table itself; other schedules make one."""
        return self


class OperationBlock(NamedTuple):
    """The operations of one or more channels on ranks that go through the same steps.

    Each operation is a row, and each rank an entry of that row.
    """

    rank: Ints  # [ranks]
    channel: Ints  # [rows]
    step: Ints  # [rows], ascending
    kind: Ints  # [rows]
    fields: tuple[Ints, Ints, Ints, Ints]  # peer, chunk, count, into; each [rows, ranks]


def runs_of_steps(step: Ints) -> list[tuple[slice, int]]:
    """Return the rows of consecutive steps that have equally many, and how many each step of the run has."""
    starts = np.flatnonzero(np.append(True, np.diff(step) != 0)) if len(step) else np.zeros(0, np.int64)
    heights = np.diff(np.append(starts, len(step)))
    changes = np.flatnonzero(np.append(True, np.diff(heights) != 0)) if len(heights) else heights
    ends = np.append(starts, len(step))[np.append(changes, len(heights))].tolist()
    return [(slice(a, b), int(heights[c])) for a, b, c in zip(ends[:-1], ends[1:], changes.tolist(), strict=True)]


def order_by_step(matrix: npt.NDArray[Any], runs: Sequence[tuple[slice, int]]) -> npt.NDArray[Any]:
    """Return a matrix of rows and ranks as one array, by step, then rank, then row; ``runs`` are its runs of steps."""
    ranks = matrix.shape[1]
    parts = [matrix[rows].reshape(-1, height, ranks).transpose(0, 2, 1).reshape(-1) for rows, height in runs]
    return np.concatenate(parts) if parts else np.zeros(0, matrix.dtype)


def merge_blocks(blocks: Sequence[OperationBlock]) -> OperationColumns:
    """Return what all blocks say, by step, rank and channel, unmatched."""
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
    """Return operations, [n, 8] in the order of ``Columns``, by step, rank and channel, unmatched."""
    rank, channel, step = operations.T[:3]
    ordered = operations[np.lexsort((channel, rank, step))].T.copy()
    return OperationColumns._make([*ordered, np.full(len(rank), -1, np.int32)])
