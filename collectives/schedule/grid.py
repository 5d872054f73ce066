"""Schedules in which every rank says the same relative to its row and its column of a grid of ranks."""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from collectives.schedule.matching import ends_agree, match_halves, pair_keys
from collectives.schedule.relative import RelativeSchedule
from collectives.schedule.rules import first_offence
from collectives.schedule.table import Block, Ints, StepTable, merge_blocks
from collectives.step import Kind


class Region(NamedTuple):
    """The chunks that a channel of all ranks uses: from ``first`` on, ``strides`` apart by row and by column."""

    first: int
    strides: tuple[int, int]
    size: int


@dataclass(frozen=True, repr=False)
class GridSchedule(RelativeSchedule):
    """What any one rank says, by step and channel; one entry of each array for each of its operations.

    Rank r is in row ``r // width`` and column ``r % width``. Of two arrays the first is about rows, the second about
    columns. A chunk is ``base + strides * ((row or column + shift) % their number)``; what an operation reads and what
    it writes is the same.
    """

    width: int
    channel: Ints
    step: Ints
    kind: Ints
    peer: Ints  # how far the other rank is: rows * width + columns; 0 for local operations
    count: Ints
    base: Ints
    strides: tuple[Ints, Ints]
    shifts: tuple[Ints, Ints]
    match: Ints  # the entry of the other end; -1 for local operations

    @property
    def counts(self) -> tuple[int, int]:
        """How many rows and columns there are."""
        return self.world_size // self.width, self.width

    def ranks_at(self, distance: Ints, ranks: Ints) -> Ints:
        """Return the ranks at these distances from each of ``ranks``; [distances, ranks]."""
        rows, columns = self.counts
        row = (ranks // columns + (distance // columns)[:, None]) % rows
        return np.asarray(row * columns + (ranks % columns + (distance % columns)[:, None]) % columns, np.int32)

    def first_chunks(self, ranks: Ints) -> Ints:
        """Return the first chunk of each entry on these ranks; [entries, ranks]."""
        found = np.repeat(self.base[:, None], len(ranks), axis=1).astype(np.int64)
        for place, number, stride, shift in zip(
            divmod(ranks, self.width), self.counts, self.strides, self.shifts, strict=True
        ):
            found += stride[:, None] * ((place + shift[:, None]) % number)
        return found.astype(np.int32)

    def block(self, ranks: Ints) -> Block:
        """Return what a few ranks say."""
        peer = self.ranks_at(self.peer, ranks)
        peer[self.kind >= Kind.COPY] = -1
        chunk, count = self.first_chunks(ranks), np.broadcast_to(self.count[:, None], peer.shape)
        into = np.where((self.kind == Kind.SEND)[:, None], -1, chunk).astype(np.int32)
        return Block(ranks, self.channel, self.step, self.kind, (peer, chunk, count, into))

    def table(self) -> StepTable:
        """Return what all ranks say, operation by operation."""
        columns = merge_blocks([self.block(np.arange(self.world_size, dtype=np.int32))])
        match = match_halves(columns.kind, pair_keys(columns, self.world_size, self.channels))
        call = self.algorithm, self.world_size, self.root, self.chunks, self.scratch
        return StepTable(*call, columns._replace(match=match))


def check_grid(found: GridSchedule) -> GridSchedule | None:
    """Return the schedule with its messages matched, or None if its program might be refused.

    The rules are asked of rank 0 only. What holds for it holds for all if ranks differ by one permutation of the
    chunks: that takes each chunk of a channel's region to the next row or column of the region.
    """
    regions = [_region(found, channel) for channel in range(found.channels)]
    if found.algorithm.spec.moves or found.scratch or not _are_apart(regions, found.chunks):
        return None
    rank0 = merge_blocks([found.block(np.zeros(1, np.int32))])
    if first_offence(rank0, found) is not None:
        return None
    sends, rows = np.flatnonzero(found.kind == Kind.SEND), found.counts[0]
    back = (-(found.peer // found.width) % rows) * found.width + -(found.peer % found.width) % found.width
    distance = np.where(found.kind == Kind.SEND, found.peer, back)
    match = match_halves(found.kind, distance.astype(np.int64) * found.channels + found.channel)
    there = match[sends]
    if (match[found.kind < Kind.COPY] < 0).any() or not _land_in_place(found, sends, there):
        return None
    peers = found.peer[sends]
    landed = np.array([_chunk_at(found, int(row), int(rank)) for row, rank in zip(there, peers, strict=True)], np.int32)
    chunks = (rank0.chunk[sends], landed)
    if not ends_agree(found, (found.count[sends], found.count[there]), chunks).all():
        return None
    return replace(found, match=match)


def _chunk_at(found: GridSchedule, row: int, rank: int) -> int:
    places = zip(divmod(rank, found.width), found.counts, found.strides, found.shifts, strict=True)
    return int(found.base[row]) + sum(
        int(stride[row]) * ((place + int(shift[row])) % number) for place, number, stride, shift in places
    )


def _land_in_place(found: GridSchedule, sends: npt.NDArray[Any], there: Ints) -> bool:
    """Return whether both ends of each message name the chunk by its row and column alike, whatever the rank."""
    away = found.peer[sends] // found.width, found.peer[sends] % found.width
    for far, number, stride, shift in zip(away, found.counts, found.strides, found.shifts, strict=True):
        same = (shift[sends] - shift[there] - far) % number == 0
        if ((stride[sends] != stride[there]) | ((stride[sends] > 0) & ~same)).any():
            return False
    return bool((found.base[sends] == found.base[there]).all())


def _region(found: GridSchedule, channel: int) -> Region | None:
    """Return the region of a channel; None unless each operation uses a chunk of it, or all of a row or column.

    One of the strides is that of the single chunks, and the other as many times that as there are of those.
    """
    mine = np.flatnonzero(found.channel == channel)
    both = mine[(found.strides[0][mine] > 0) & (found.strides[1][mine] > 0)]
    pairs = np.unique(np.stack([found.strides[0][both], found.strides[1][both]]), axis=1)
    if pairs.shape[1] != 1:
        return None
    strides = int(pairs[0, 0]), int(pairs[1, 0])
    major = int(strides[1] > strides[0])
    if strides[major] != strides[1 - major] * found.counts[1 - major]:
        return None
    first = int(found.base[mine].min())
    within, count = found.base[mine] - first, found.count[mine]
    used = [(stride[mine] == whole) for stride, whole in zip(found.strides, strides, strict=True)]
    none = [stride[mine] == 0 for stride in found.strides]
    is_chunk = used[0] & used[1] & (within + count <= min(strides))
    is_cell = used[major] & none[1 - major] & (within == 0) & (count == strides[major])
    size = strides[major] * found.counts[major]
    return Region(first, strides, size) if bool((is_chunk | is_cell).all()) else None


def _are_apart(regions: list[Region | None], chunks: int) -> bool:
    """Return whether there is a region for each channel, and no two have a chunk in common."""
    spans = sorted((one.first, one.first + one.size) for one in regions if one is not None)
    apart = all(before[1] <= after[0] for before, after in pairwise(spans))
    return len(spans) == len(regions) and apart and spans[-1][1] <= chunks
