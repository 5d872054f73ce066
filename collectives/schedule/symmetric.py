"""Schedules in which every rank says the same relative to the digits of its number: said once, they hold for all.

Ranks are counted in one digit, or in the rows and columns of a grid. A program in which all ranks add to their digits,
modulo how many there are, does the same on each of them: its schedule has a *symmetry*, and is small however many
ranks there are.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from collectives.schedule.rules import ends_agree, first_offence, match_halves
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
from collectives.symbolic_rank import Digits

Places = tuple[npt.NDArray[Any], ...]  # the digits of some ranks


class DigitArray(NamedTuple):
    """A number of each entry, as ``DigitRank`` is one: ``base + stride * ((digit + shift) % count)`` by digits."""

    base: Ints  # [entries]
    strides: Ints  # [digits, entries]
    shifts: Ints  # [digits, entries]

    @property
    def is_shifted(self) -> Bools:
        """Which of the numbers depend on the rank."""
        return np.asarray(self.strides.any(axis=0))

    def select(self, entries: npt.NDArray[Any]) -> "DigitArray":
        """Return the numbers of some entries."""
        return DigitArray(self.base[entries], self.strides[:, entries], self.shifts[:, entries])

    def on(self, places: Places, radix: Digits) -> Ints:
        """Return the numbers on ranks whose digits are ``places``, each [ranks] or [entries, 1]; [entries, ranks]."""
        found = np.repeat(self.base[:, None], np.shape(places[0])[-1], axis=1)
        for place, count, stride, shift in zip(places, radix, self.strides, self.shifts, strict=True):
            found += stride[:, None] * ((place.astype(np.int32) + shift[:, None]) % np.int32(count))
        return found


@dataclass(frozen=True, repr=False)
class SymmetricSchedule(ProgramCall):
    """What any one rank says, by step and channel; one entry of each array for each of its operations.

    ``radix`` says how many values each digit of a rank's number has. A distance between ranks is written as
    a rank's number is: its digits are how much is added to those of the rank.
    """

    radix: Digits
    channel: Ints
    step: Ints
    kind: Ints
    peer: Ints  # distance to the other rank; 0 for local operations
    count: Ints
    read: DigitArray  # first chunk that is read; a receive reads nothing, and its is the one that it writes
    written: DigitArray  # first chunk that is written; -1 for sends
    match: Ints  # the entry of the other end, on the rank at that distance; -1 for local operations

    def __repr__(self) -> str:
        sends = int(np.count_nonzero(self.kind == Kind.SEND))
        return f"<{type(self).__name__} {self.describe()}: {sends} messages of each rank>"

    @property
    def is_cyclic(self) -> bool:
        """Whether what a rank says is relative to its number as a whole."""
        return len(self.radix) == 1

    @property
    def messages(self) -> int:
        """How many messages there are, empty ones included."""
        return self.world_size * int(np.count_nonzero(self.kind == Kind.SEND))

    @property
    def steps(self) -> int:
        """Steps of the channel that has most."""
        return int(self.step.max(initial=-1)) + 1

    @property
    def channels(self) -> int:
        """Channels of a rank."""
        return int(self.channel.max(initial=0)) + 1

    def places(self, ranks: Ints) -> Places:
        """Return the digits of these ranks."""
        return np.unravel_index(ranks, self.radix)

    def ranks_at(self, distance: Ints, ranks: Ints) -> Ints:
        """Return the ranks at these distances from each of ``ranks``; [distances, ranks]."""
        digits = [here + away[:, None] for here, away in zip(self.places(ranks), self.places(distance), strict=True)]
        return np.ravel_multi_index(digits, self.radix, mode="wrap").astype(np.int32)

    def _back(self, distance: Ints) -> Ints:
        """Return the distances of the way back."""
        return np.ravel_multi_index([-away for away in self.places(distance)], self.radix, mode="wrap").astype(np.int32)

    @property
    def stride(self) -> int:
        """How far apart the chunks are that a cyclic schedule's ranks count; 1 where none are counted."""
        return int(max(self.read.strides.max(initial=1), self.written.strides.max(initial=1)))

    def by_cycle(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return numbers that belong to all chunks by *cycle*: those that one shifted chunk is on ranks one by one.

        Of a cyclic schedule. Shape [cycles, world_size]; the entry of ``(rank + shift) % world_size`` is that of a
        chunk on ``rank``.
        """
        groups = values.reshape(-1, self.world_size, self.stride)
        return groups.swapaxes(1, 2).reshape(-1, self.world_size)

    def cycle(self) -> Ints:
        """Return the cycle of the chunk that each entry reads; of no meaning where that is not shifted."""
        group, within = np.divmod(self.read.base, self.stride * self.world_size)
        return np.asarray(group * self.stride + within, np.int32)

    def block(self, ranks: Ints) -> OperationBlock:
        """Return what all ranks say, or a few."""
        peer, places = self.ranks_at(self.peer, ranks), self.places(ranks)
        peer[self.kind >= Kind.COPY] = -1
        chunks = (numbers.on(places, self.radix) for numbers in (self.read, self.written))
        count = np.broadcast_to(self.count[:, None], peer.shape)
        return OperationBlock(ranks, self.channel, self.step, self.kind, (peer, next(chunks), count, next(chunks)))

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


def match_symmetric(found: SymmetricSchedule) -> SymmetricSchedule | None:
    """Return the schedule with its messages matched, or None if its program might be refused.

    The rules are asked of rank 0 only. What holds for it holds for all if ranks differ by permutations of the chunks.
    """
    if not _ranks_are_permuted(found):
        return None
    rank0 = merge_blocks([found.block(np.zeros(1, np.int32))])
    if first_offence(rank0, found) is not None:
        return None
    distance = np.where(found.kind == Kind.SEND, found.peer, found._back(found.peer))  # from sender to receiver
    match = match_halves(found.kind, distance.astype(np.int64) * found.channels + found.channel)
    if (match[found.kind < Kind.COPY] < 0).any():
        return None
    sends = np.flatnonzero(found.kind == Kind.SEND)
    there = match[sends]
    sent, landed = found.read.select(sends), found.written.select(there)
    if (sent.strides != landed.strides).any():
        return None
    at_peer = landed.on(tuple(place[:, None] for place in found.places(found.peer[sends])), found.radix)[:, 0]
    if not ends_agree(found, (found.count[sends], found.count[there]), (rank0.chunk[sends], at_peer)).all():
        return None
    return replace(found, match=match)


def _ranks_are_permuted(found: SymmetricSchedule) -> bool:
    """Return whether one more of a digit is one permutation of the chunks, whatever the operation.

    The chunks lie in *tiles*, of ``world_size`` times as many chunks as the smallest stride says. In a tile one digit
    counts pieces of this stride, the next one groups of all those pieces, and so on; or nothing in it depends on the
    rank. An operation uses one piece or what lies in it, a whole group, or whole tiles: the digits take each of these
    to another of its kind.
    """
    reads, writes = (found.kind == Kind.SEND) | (found.kind >= Kind.COPY), found.kind != Kind.SEND
    local = found.kind >= Kind.COPY
    if (found.read.strides != found.written.strides)[:, local].any():
        return False
    used = found.read.select(np.flatnonzero(reads)), found.written.select(np.flatnonzero(writes))
    base, strides = np.concatenate([one.base for one in used]), np.concatenate([one.strides for one in used], axis=1)
    count = np.concatenate([found.count[reads], found.count[writes]])
    if not strides.any():
        return True
    unit = int(strides[strides > 0].min())
    size = unit * found.world_size
    if found.chunks % size or found.scratch % size or (base < 0).any() or (base + count > found.total).any():
        return False
    tile, within = np.divmod(base, size)
    of_tile = np.zeros((len(found.radix), found.total // size), np.int32)
    for strides_of_digit, counted in zip(of_tile, strides, strict=True):
        np.maximum.at(strides_of_digit, tile, counted)
    moves = of_tile.any(axis=0)
    order = np.argsort(of_tile, axis=0)
    wide = np.take_along_axis(of_tile, order, axis=0)
    if (wide[0, moves] != unit).any() or (wide[1:] != wide[:-1] * np.array(found.radix)[order[:-1]])[:, moves].any():
        return False
    before = np.append(0, np.cumsum(moves))
    stays = before[(base + count - 1) // size + 1] == before[tile]
    piece = np.where(strides > 0, strides, size).min(axis=0)
    counts_all_above = (strides == np.where(of_tile[:, tile] >= piece, of_tile[:, tile], 0)).all(axis=0)
    most = 1 if found.is_cyclic else unit  # of one digit's pieces all that is said is of chunks one by one
    is_piece = (piece == unit) & (within + count <= unit) & (count <= most)
    is_group = (piece > unit) & (within == 0) & ((count == piece) | ((piece == size) & (count % size == 0)))
    return bool((stays | (counts_all_above & (is_piece | is_group))).all())
