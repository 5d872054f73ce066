"""Programs in which every rank says the same relative to itself, as numbers that hold for all ranks."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from collectives.declaration import Algorithm
from collectives.schedule.schedule import Ints
from collectives.schedule.table import Block, StepTable, is_sound, laid_out, merged, runs_of_steps, same_places
from collectives.step import Kind

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class CyclicSchedule:
    """What any one rank says; one entry of each array for each of its operations.

    Chunks are ``(rank + turn) % world_size + plus``, or only ``plus`` where ``turns`` is False. Of two arrays the first
    is about the first chunk read, and the second about the first chunk written.
    """

    algorithm: Algorithm
    world_size: int
    root: int
    chunks: int
    scratch: int
    step: Ints
    kind: Ints
    peer: Ints  # how far up the ring; 0 for local operations
    count: Ints
    turns: tuple[Bools, Bools]
    turn: tuple[Ints, Ints]
    plus: tuple[Ints, Ints]
    match: Ints  # the entry of the other end, on the rank ``peer`` up the ring; -1 for local operations

    def chunk_of(self, ranks: Ints, which: int = 0) -> Ints:
        """First chunk read (or written, ``which`` = 1) by each entry on each of some ranks; [entries, ranks]."""
        turned = self.up(self.turn[which], ranks)
        turned[~self.turns[which]] = 0
        turned += self.plus[which][:, None]
        return turned

    def up(self, distance: Ints, ranks: Ints) -> Ints:
        """The rank that is so far up the ring from each of all ranks or a few; [distances, ranks]."""
        p = self.world_size
        if len(ranks) < p:
            return np.asarray((ranks + distance[:, None]) % p, np.int32)
        twice = np.arange(2 * p, dtype=np.int32) % np.int32(p)
        return np.lib.stride_tricks.sliding_window_view(twice, p)[distance % p]

    def block(self, ranks: Ints) -> Block:
        """What all ranks say, or a few."""
        peer = self.up(self.peer, ranks)
        peer[self.kind >= Kind.COPY] = -1
        count = np.broadcast_to(self.count[:, None], peer.shape)
        fields = (peer, self.chunk_of(ranks), count, self.chunk_of(ranks, 1))
        return Block(ranks, np.zeros_like(self.step), self.step, self.kind, fields)

    def table(self) -> StepTable:
        """What all ranks say, operation by operation."""
        p, runs = self.world_size, runs_of_steps(self.step)
        ranks = np.arange(p, dtype=np.int32)
        columns = merged([self.block(ranks)])
        row = np.arange(len(self.step), dtype=np.int32)
        first, height = np.zeros_like(row), np.ones_like(row)  # of each row's step
        for rows, tall in runs:
            first[rows] = (row[rows] - row[rows.start]) // tall * tall + row[rows.start]
            height[rows] = tall
        there = self.match
        match = self.up(self.peer, ranks)
        match *= height[there][:, None]
        match += (first[there] * p + there - first[there])[:, None]
        match[there < 0] = -1
        columns = columns._replace(match=laid_out(match, runs))
        return StepTable(self.algorithm, p, self.root, self.chunks, self.scratch, columns)


def proved(found: CyclicSchedule) -> CyclicSchedule | None:
    """The program with its messages matched, or None if it might be refused.

    What holds for rank 0 holds for all: a turn of the ring takes every rank to the next, every chunk that turns to the
    next of its world_size (chunks that turn come in such numbers), and leaves the others.
    """
    p, local, sends = found.world_size, found.kind >= Kind.COPY, found.kind == Kind.SEND
    used = (sends | local, ~sends)
    turned = (found.turns[0] & used[0]) | (found.turns[1] & used[1])
    whole = found.chunks % p == 0 and found.scratch % p == 0 and bool((found.count[turned] == 1).all())
    whole &= not any((plus[turns] % p).any() for plus, turns in zip(found.plus, found.turns, strict=True))
    if (turned.any() and not whole) or len(np.unique(found.turns[1][used[1]])) > 1:
        return None
    if (found.turns[0] != found.turns[1])[local].any():
        return None
    rank0 = merged([found.block(np.zeros(1, np.int32))])
    if not is_sound(StepTable(found.algorithm, p, found.root, found.chunks, found.scratch, rank0)):
        return None
    return _matched(found)


def _matched(found: CyclicSchedule) -> CyclicSchedule | None:
    """The k-th send up the ring by d beside the k-th receive from d below, where they speak of the same chunk."""
    p = found.world_size
    sends = np.flatnonzero(found.kind == Kind.SEND)
    receives = np.flatnonzero((found.kind == Kind.RECV) | (found.kind == Kind.RECV_REDUCE))
    up, down = found.peer[sends], (p - found.peer[receives]) % p
    one, other = sends[np.argsort(up, kind="stable")], receives[np.argsort(down, kind="stable")]
    if not np.array_equal(np.sort(up), np.sort(down)):
        return None
    here = np.where(found.turns[0][one], found.turn[0][one] % p, 0) + found.plus[0][one]  # on rank 0, ...
    there = np.where(found.turns[1][other], (found.peer[one] + found.turn[1][other]) % p, 0) + found.plus[1][other]
    placed = found.algorithm.spec.moves | same_places(here, there, found.chunks)
    agree = (found.turns[0][one] == found.turns[1][other]) & (found.count[one] == found.count[other])
    if not (agree & placed).all():
        return None
    match = found.match.copy()
    match[one], match[other] = other, one
    return replace(found, match=match)
