"""Build schedules in which all ranks run the same operations, relative to their own rank number.

Such a *symmetric* schedule stores the operations of one rank, so its size does not depend on the number of ranks.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from collectives.schedule.rules import ends_agree, first_violation, match_halves
from collectives.schedule.schedule import (
    Bools,
    Ints,
    OperationBlock,
    ProgramCall,
    StepTable,
    merge_blocks,
    order_by_step,
    runs_of_steps,
)
from collectives.step import Kind


class ShiftedNumbers(NamedTuple):
    """An array of ``ShiftedRank`` values, such as chunk numbers. A number with stride 0 is equal on all ranks."""

    base: Ints
    stride: Ints
    shift: Ints

    @property
    def is_shifted(self) -> Bools:
        return self.stride > 0

    def select(self, entries: npt.NDArray[Any]) -> "ShiftedNumbers":
        return ShiftedNumbers(self.base[entries], self.stride[entries], self.shift[entries])

    def on(self, ranks: Ints, world_size: int) -> Ints:
        """Return the values on the given ranks; shape [entries, ranks].

        ``ranks`` has the shape [ranks], or [entries, 1] if each entry has its own rank.
        """
        values: Ints = ranks + self.shift[:, None]
        values %= np.int32(world_size)
        values *= self.stride[:, None]
        values += self.base[:, None]
        return values


@dataclass(frozen=True, repr=False)
class SymmetricSchedule(ProgramCall):
    """The operations of one rank, relative to its number. They represent all ranks. Arrays are indexed by operation."""

    channel: Ints
    step: Ints
    kind: Ints
    peer: Ints  # distance to the other rank, modulo world_size; 0 for local operations
    count: Ints
    read: ShiftedNumbers  # first chunk that is read; for a receive, the first chunk that it writes
    written: ShiftedNumbers  # first chunk that is written; -1 for sends
    match: Ints  # entry of the matching operation, on the rank at that distance; -1 for local operations

    def __repr__(self) -> str:
        sends = int(np.count_nonzero(self.kind == Kind.SEND))
        return f"<{type(self).__name__} {self.describe()}: {sends} messages of each rank>"

    @property
    def messages(self) -> int:
        return self.world_size * int(np.count_nonzero(self.kind == Kind.SEND))

    @property
    def steps(self) -> int:
        return int(self.step.max(initial=-1)) + 1

    @property
    def channels(self) -> int:
        return int(self.channel.max(initial=0)) + 1

    def ranks_at(self, distance: Ints, ranks: Ints) -> Ints:
        """Return the ranks that are ``distance`` ahead of each of ``ranks``; shape [distances, ranks]."""
        peers: Ints = (ranks + distance[:, None]) % np.int32(self.world_size)
        return peers

    @property
    def stride(self) -> int:
        """The difference between the chunks that consecutive ranks use, or 1 if no chunk depends on the rank."""
        return int(max(self.read.stride.max(initial=1), self.written.stride.max(initial=1)))

    def by_cycle(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return one value per chunk, grouped into cycles; shape [cycles, world_size].

        A *cycle* consists of the chunks that one operation uses on the different ranks. On rank r, the operation uses
        entry ``(r + shift) % world_size``.
        """
        groups = values.reshape(-1, self.world_size, self.stride)
        return groups.swapaxes(1, 2).reshape(-1, self.world_size)

    def cycle(self) -> Ints:
        """Return the cycle of the chunk that each operation reads. Chunks that do not depend on the rank have none."""
        group, within = np.divmod(self.read.base, self.stride * self.world_size)
        return np.asarray(group * self.stride + within, np.int32)

    def block(self, ranks: Ints) -> OperationBlock:
        peer = self.ranks_at(self.peer, ranks)
        peer[self.kind >= Kind.COPY] = -1
        chunks = (numbers.on(ranks, self.world_size) for numbers in (self.read, self.written))
        count = np.broadcast_to(self.count[:, None], peer.shape)
        return OperationBlock(ranks, self.channel, self.step, self.kind, (peer, next(chunks), count, next(chunks)))

    def table(self) -> StepTable:
        p, runs = self.world_size, runs_of_steps(self.step)
        ranks = np.arange(p, dtype=np.int32)
        columns = merge_blocks([self.block(ranks)])
        row = np.arange(len(self.step), dtype=np.int32)
        first, height = np.zeros_like(row), np.ones_like(row)  # first row and number of rows of each row's step
        for rows, tall in runs:
            first[rows] = (row[rows] - row[rows.start]) // tall * tall + row[rows.start]
            height[rows] = tall
        match_row = self.match
        match = self.ranks_at(self.peer, ranks)
        match *= height[match_row][:, None]
        match += (first[match_row] * p + match_row - first[match_row])[:, None]
        match[match_row < 0] = -1
        columns = columns._replace(match=order_by_step(match, runs))
        return StepTable(self.algorithm, p, self.root, self.chunks, self.scratch, columns)


def match_symmetric(symmetric: SymmetricSchedule) -> SymmetricSchedule | None:
    """Return the schedule with its messages matched, or None if the program could be invalid.

    Only rank 0 is checked. The result holds for all ranks because they differ only by a permutation of the chunks.
    """
    if not _ranks_are_permuted(symmetric):
        return None
    rank0 = merge_blocks([symmetric.block(np.zeros(1, np.int32))])
    if first_violation(rank0, symmetric) is not None:
        return None
    from_sender = np.where(symmetric.kind == Kind.SEND, symmetric.peer, -symmetric.peer) % symmetric.world_size
    match = match_halves(symmetric.kind, from_sender.astype(np.int64) * symmetric.channels + symmetric.channel)
    if (match[symmetric.kind < Kind.COPY] < 0).any():
        return None
    sends = np.flatnonzero(symmetric.kind == Kind.SEND)
    receives = match[sends]
    sent, landed = symmetric.read.select(sends), symmetric.written.select(receives)
    if (sent.stride != landed.stride).any():
        return None
    at_peer = landed.on(symmetric.peer[sends, None], symmetric.world_size)[:, 0]
    if not ends_agree(
        symmetric, (symmetric.count[sends], symmetric.count[receives]), (rank0.chunk[sends], at_peer)
    ).all():
        return None
    return replace(symmetric, match=match)


def _ranks_are_permuted(schedule: SymmetricSchedule) -> bool:
    """Return whether one permutation of the chunks turns each rank's operations into those of the next rank.

    Chunks form groups of ``stride * world_size``. The permutation rotates a group by one stride if the chunk of an
    operation in this group depends on the rank. Every operation must use one chunk of a rotated group, whole groups, or
    no rotated group.
    """
    reads, writes = (schedule.kind == Kind.SEND) | (schedule.kind >= Kind.COPY), schedule.kind != Kind.SEND
    local = schedule.kind >= Kind.COPY
    if (schedule.read.stride != schedule.written.stride)[local].any():
        return False
    used = schedule.read.select(np.flatnonzero(reads)), schedule.written.select(np.flatnonzero(writes))
    base, stride = np.concatenate([chunks.base for chunks in used]), np.concatenate([chunks.stride for chunks in used])
    count, moves = np.concatenate([schedule.count[reads], schedule.count[writes]]), stride > 0
    if not moves.any():
        return True
    size = schedule.stride * schedule.world_size
    if schedule.chunks % size or schedule.scratch % size or (base < 0).any() or (base + count > schedule.total).any():
        return False
    group, within = np.divmod(base, size)
    group_moves = np.zeros(schedule.total // size, np.bool_)
    group_moves[group[moves]] = True
    before = np.append(0, np.cumsum(group_moves))
    stays = before[(base + count - 1) // size + 1] == before[group]
    is_chunk = (stride == schedule.stride) & (within < stride) & (count == 1)
    is_whole = ~moves & (within == 0) & (count % size == 0)
    return bool((stays | is_chunk | is_whole).all())
