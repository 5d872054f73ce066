"""What all ranks say, as arrays in the order in which they say it: step by step."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from collectives.declaration import Algorithm
from collectives.schedule.schedule import Ints, Schedule
from collectives.step import Kind

Bools = npt.NDArray[np.bool_]


class Columns(NamedTuple):
    """Every operation of every rank, by step, rank and channel, then as posted; one entry of each array for each."""

    rank: Ints
    channel: Ints
    step: Ints
    kind: npt.NDArray[np.integer[Any]]
    peer: Ints
    chunk: Ints
    count: Ints  # type: ignore[assignment]  # a tuple's count of an item is nothing that anyone asks for
    into: Ints
    match: Ints  # index of the operation at the other end; -1 for local ones


@dataclass(frozen=True)
class StepTable:
    """A traced program without its steps as objects."""

    algorithm: Algorithm
    world_size: int
    root: int
    chunks: int
    scratch: int
    columns: Columns

    @property
    def channels(self) -> int:
        """Channels of the rank that has most."""
        return int(self.columns.channel.max(initial=0)) + 1


class Block(NamedTuple):
    """What one channel of some ranks says that go through the same steps; row by row, one column a rank."""

    rank: Ints  # [ranks]
    channel: Ints  # [rows], all the same
    step: Ints  # [rows], ascending
    kind: Ints  # [rows]
    fields: tuple[Ints, Ints, Ints, Ints]  # peer, chunk, count, into; each [rows, ranks]


def step_table(schedule: Schedule) -> StepTable:
    """The same step by step."""
    order = np.lexsort((schedule.channel, schedule.rank, schedule.step))
    place = np.empty(len(order) + 1, np.int32)
    place[order], place[-1] = np.arange(len(order), dtype=np.int32), -1
    fields = (getattr(schedule, name)[order] for name in Columns._fields[:-1])
    columns = Columns._make([*fields, place[schedule.match[order]]])  # a match of -1 finds the last place
    return StepTable(
        schedule.algorithm, schedule.world_size, schedule.root, schedule.chunks, schedule.scratch, columns
    )  # fmt: skip


def runs_of_steps(step: Ints) -> list[tuple[slice, int]]:
    """Rows of consecutive steps that have equally many, and how many each step of the run has."""
    starts = np.flatnonzero(np.append(True, np.diff(step) != 0)) if len(step) else np.zeros(0, np.int64)
    heights = np.diff(np.append(starts, len(step)))
    turns = np.flatnonzero(np.append(True, np.diff(heights) != 0)) if len(heights) else heights
    ends = np.append(starts, len(step))[np.append(turns, len(heights))].tolist()
    return [(slice(a, b), int(heights[t])) for a, b, t in zip(ends[:-1], ends[1:], turns.tolist(), strict=True)]


def laid_out(matrix: npt.NDArray[Any], runs: Sequence[tuple[slice, int]]) -> npt.NDArray[Any]:
    """A matrix of rows and ranks in the order of Columns: step, then rank, then row."""
    ranks = matrix.shape[1]
    parts = [matrix[rows].reshape(-1, height, ranks).transpose(0, 2, 1).reshape(-1) for rows, height in runs]
    return np.concatenate(parts) if parts else np.zeros(0, matrix.dtype)


def merged(blocks: Sequence[Block]) -> Columns:
    """All blocks as columns; nothing is matched yet."""
    parts: list[list[npt.NDArray[Any]]] = []
    for block in blocks:
        runs, shape = runs_of_steps(block.step), (len(block.step), len(block.rank))
        same = [np.broadcast_to(block.rank, shape)] + [np.broadcast_to(row[:, None], shape) for row in block[1:4]]
        parts.append([laid_out(matrix, runs) for matrix in [*same, *block.fields]])
    joined = [np.concatenate(column) for column in zip(*parts, strict=True)]
    if len(blocks) > 1:
        order = np.lexsort((joined[1], joined[0], joined[2]))
        joined = [column[order] for column in joined]
    return Columns._make([*joined, np.full(len(joined[0]), -1, np.int32)])


def matched(columns: Columns, world_size: int) -> Columns | None:
    """The k-th send from a to b on a channel beside the k-th receive at b from a; None where one has no other end."""
    sends = np.flatnonzero(columns.kind == Kind.SEND)
    receives = np.flatnonzero((columns.kind == Kind.RECV) | (columns.kind == Kind.RECV_REDUCE))
    channel = columns.channel.astype(np.int64) * world_size**2
    ways = channel[sends] + columns.rank[sends].astype(np.int64) * world_size + columns.peer[sends]
    ways_back = channel[receives] + columns.peer[receives].astype(np.int64) * world_size + columns.rank[receives]
    one, other = np.argsort(ways, kind="stable"), np.argsort(ways_back, kind="stable")
    if not np.array_equal(ways[one], ways_back[other]):
        return None
    match = columns.match.copy()
    match[sends[one]], match[receives[other]] = receives[other], sends[one]
    return columns._replace(match=match)


def is_sound(table: StepTable) -> bool:
    """Whether every operation makes sense on its own, and none touches what only another may."""
    rank, _, _, kind, peer, chunk, count, into, _ = table.columns
    chunks, total = table.chunks, table.chunks + table.scratch
    local, sends = kind >= Kind.COPY, kind == Kind.SEND
    placed = table.algorithm.spec.moves | same_places(chunk, into, chunks)
    fine = (count >= 1) & np.where(local, placed, (peer >= 0) & (peer < table.world_size)) & (peer != rank)
    for first, used in ((chunk, sends | local), (into, ~sends)):
        last = first + count - 1
        inside = (first >= 0) & (last < total) & ((first >= chunks) | (last < chunks))
        fine &= inside | ~used
    return bool(fine.all()) and _writes_apart(table.columns) and _channels_apart(table)


def _writes_apart(columns: Columns) -> bool:
    """Whether no step of a rank writes a chunk twice."""
    writes = np.flatnonzero(columns.kind != Kind.SEND)
    stage = (columns.step, columns.rank, columns.channel)
    with_next = np.logical_and.reduce([column[writes][1:] == column[writes][:-1] for column in stage])
    several = np.append(with_next, False) | np.append(False, with_next)
    chosen = writes[several[: len(writes)]]
    order = chosen[np.lexsort([columns.into[chosen], *(column[chosen] for column in stage)])]
    one, other = order[:-1], order[1:]
    together = np.logical_and.reduce([column[one] == column[other] for column in stage])
    return not bool((together & (columns.into[one] + columns.count[one] > columns.into[other])).any())


def _channels_apart(table: StepTable) -> bool:
    """Whether the channels of a rank touch different chunks."""
    channels, columns = table.channels, table.columns
    if channels == 1:
        return True
    total, touched = table.chunks + table.scratch, []
    for first in (columns.chunk, np.where(columns.into < 0, columns.chunk, columns.into)):
        each = np.repeat(np.arange(len(first)), columns.count)
        chunk = first[each] + np.arange(len(each)) - np.repeat(np.cumsum(columns.count) - columns.count, columns.count)
        touched.append((columns.rank[each].astype(np.int64) * total + chunk) * channels + columns.channel[each])
    uses = np.sort(np.concatenate(touched))  # numpy.unique, which hashes whole numbers, takes several times as long
    chunks = uses // channels
    return not bool(((chunks[1:] == chunks[:-1]) & (uses[1:] != uses[:-1])).any())


def same_places(one: Ints, other: Ints, chunks: int) -> Bools:
    """``collectives.step.same_place`` for each entry."""
    return np.asarray((one - other) % chunks == 0)


def ends_agree(table: StepTable) -> bool:
    """Whether both ends of each message speak of the same chunks, scratch apart."""
    columns = table.columns
    sends = np.flatnonzero(columns.kind == Kind.SEND)
    other = columns.match[sends]
    placed = table.algorithm.spec.moves | same_places(columns.chunk[sends], columns.into[other], table.chunks)
    return bool(((columns.count[sends] == columns.count[other]) & placed).all())
