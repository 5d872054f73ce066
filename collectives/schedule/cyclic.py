"""Schedules in which every rank says the same relative to its own number, as numbers that hold for all ranks."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from collectives.schedule.matching import ends_agree, match_halves
from collectives.schedule.relative import RelativeSchedule
from collectives.schedule.rules import first_offence
from collectives.schedule.table import (
    Block,
    Bools,
    Columns,
    Ints,
    StepTable,
    merge_blocks,
    order_by_step,
    runs_of_steps,
)
from collectives.step import Kind


@dataclass(frozen=True, repr=False)
class CyclicSchedule(RelativeSchedule):
    """What any one rank says, by step and channel; one entry of each array for each of its operations.

    Chunks are ``(rank + shift) % world_size * stride + base``, or only ``base`` where ``is_shifted`` is False. Of two
    arrays the first is about the first chunk read, and the second about the first chunk written.
    """

    stride: int
    channel: Ints
    step: Ints
    kind: Ints
    peer: Ints  # distance to the other rank, modulo world_size; 0 for local operations
    count: Ints
    is_shifted: tuple[Bools, Bools]
    shift: tuple[Ints, Ints]
    base: tuple[Ints, Ints]
    match: Ints  # the entry of the other end, on the rank ``peer`` further on; -1 for local operations

    def by_cycle(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return numbers that belong to all chunks by *cycle*: those that one shifted chunk is on ranks one by one.

        Shape [cycles, world_size]; the entry of ``(rank + shift) % world_size`` is that of a chunk on ``rank``.
        """
        groups = values.reshape(-1, self.world_size, self.stride)
        return groups.swapaxes(1, 2).reshape(-1, self.world_size)

    def cycle(self, which: int = 0) -> Ints:
        """Return the cycle of each entry's chunk; of no meaning where that is not shifted."""
        group, within = np.divmod(self.base[which], self.stride * self.world_size)
        return np.asarray(group * self.stride + within, np.int32)

    def first_chunks(self, ranks: Ints, which: int = 0) -> Ints:
        """Return the first chunk read (or written, ``which`` = 1) by each entry on these ranks; [entries, ranks]."""
        chunk = self.ranks_at(self.shift[which], ranks)
        if self.stride > 1:
            chunk *= np.int32(self.stride)
        chunk[~self.is_shifted[which]] = 0
        chunk += self.base[which][:, None]
        return chunk

    def ranks_at(self, distance: Ints, ranks: Ints) -> Ints:
        """Return the ranks at these distances from each of ``ranks``, all ranks or a few; [distances, ranks]."""
        p = self.world_size
        if len(ranks) < p:
            return np.asarray((ranks + distance[:, None]) % p, np.int32)
        twice = np.arange(2 * p, dtype=np.int32) % np.int32(p)
        return np.lib.stride_tricks.sliding_window_view(twice, p)[distance % p]

    def block(self, ranks: Ints) -> Block:
        """Return what all ranks say, or a few."""
        peer = self.ranks_at(self.peer, ranks)
        peer[self.kind >= Kind.COPY] = -1
        count = np.broadcast_to(self.count[:, None], peer.shape)
        fields = (peer, self.first_chunks(ranks), count, self.first_chunks(ranks, 1))
        return Block(ranks, self.channel, self.step, self.kind, fields)

    def table(self) -> StepTable:
        """Return what all ranks say, operation by operation."""
        p, runs = self.world_size, runs_of_steps(self.step)
        ranks = np.arange(p, dtype=np.int32)
        columns = merge_blocks([self.block(ranks)])
        row = np.arange(len(self.step), dtype=np.int32)
        first, height = np.zeros_like(row), np.ones_like(row)  # of each row's step
        for rows, tall in runs:
            first[rows] = (row[rows] - row[rows.start]) // tall * tall + row[rows.start]
            height[rows] = tall
        there = self.match
        match = self.ranks_at(self.peer, ranks)
        match *= height[there][:, None]
        match += (first[there] * p + there - first[there])[:, None]
        match[there < 0] = -1
        columns = columns._replace(match=order_by_step(match, runs))
        return StepTable(self.algorithm, p, self.root, self.chunks, self.scratch, columns)

    @cached_property
    def _is_read(self) -> Bools:
        return np.asarray((self.kind == Kind.SEND) | (self.kind >= Kind.COPY))

    @cached_property
    def _is_written(self) -> Bools:
        return np.asarray(self.kind != Kind.SEND)


def check_cyclic(found: CyclicSchedule) -> CyclicSchedule | None:
    """Return the schedule with its messages matched, or None if its program might be refused.

    The rules are asked of rank 0 only. What holds for it holds for all if ranks differ by one permutation of the
    chunks, which takes every shifted chunk to the next of its world_size and leaves the others.
    """
    if not _ranks_are_permuted(found):
        return None
    rank0: Columns = merge_blocks([found.block(np.zeros(1, np.int32))])
    if first_offence(rank0, found) is not None:
        return None
    p = found.world_size
    distance = np.where(found.kind == Kind.SEND, found.peer, p - found.peer) % p  # from the sender to the receiver
    match = match_halves(found.kind, distance.astype(np.int64) * found.channels + found.channel)
    sends = np.flatnonzero(found.kind == Kind.SEND)
    there = match[sends]
    if (match[found.kind < Kind.COPY] < 0).any() or (found.is_shifted[0][sends] != found.is_shifted[1][there]).any():
        return None
    at_peer = np.where(found.is_shifted[1][there], (found.peer[sends] + found.shift[1][there]) % p * found.stride, 0)
    chunks = (rank0.chunk[sends], at_peer + found.base[1][there])  # what rank 0 sends, and where that lands
    if not ends_agree(found, (found.count[sends], found.count[there]), chunks).all():
        return None
    return replace(found, match=match)


def _ranks_are_permuted(found: CyclicSchedule) -> bool:
    """Return whether each shifted chunk is in one whole cycle, and no chunk is both shifted and not."""
    p, used = found.world_size, (found._is_read, found._is_written)
    shifted = [which & use for which, use in zip(found.is_shifted, used, strict=True)]
    written = found.is_shifted[1][used[1]]
    if written.any() and not written.all():
        return False
    local = found.kind >= Kind.COPY
    if (found.is_shifted[0] != found.is_shifted[1])[local].any():
        return False
    is_any = shifted[0] | shifted[1]
    if not is_any.any():
        return True
    if found.channels > 1 and not is_any.all():
        return False
    group = p * found.stride
    in_groups = found.chunks % group == 0 and found.scratch % group == 0
    starts = (base[which] % group for base, which in zip(found.base, found.is_shifted, strict=True))
    return (
        in_groups and all((start < found.stride).all() for start in starts) and bool((found.count[is_any] == 1).all())
    )
