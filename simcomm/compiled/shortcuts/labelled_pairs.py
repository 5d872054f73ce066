"""Pairs of ranks labelled by what they send, and ranks by what they compute: two with one label do the same.

Where chunks are unequal, some are an element longer than the others. What a pair sends, or a rank computes, is of
chunks that lie alike relative to each rank; which of them are longer is its *pattern*, a number of which bit k is that
of its k-th chunk. Of few chunks there are few patterns, whatever the number of ranks, so that many remain alike.
"""

from typing import NamedTuple

import numpy as np

from collectives.schedule.symmetric import SymmetricSchedule
from collectives.step import Kind
from simcomm.compiled.kernel.arrays import Bools, Floats, Ints, LongInts, number_distinct
from simcomm.compiled.planning.schedule_plan import ChunkSizes, distances, find_active_steps

PATTERN_BITS = 16  # a chunk each that a pair sends, or a rank computes; with more hardly any two are alike


class Lists(NamedTuple):
    """Lists of rows of numbers, one after the other: list k is ``rows[first[k]:first[k + 1]]``."""

    first: LongInts
    rows: Floats  # [rows, numbers]

    def select(self, chosen: Ints) -> "Lists":
        """Return some of the lists."""
        counts = np.diff(self.first)[chosen]
        first = np.concatenate([[0], np.cumsum(counts)])
        at = np.repeat(self.first[:-1][chosen] - first[:-1], counts) + np.arange(first[-1])
        return Lists(first, self.rows[at])


class LabelledPairs(NamedTuple):
    """Agents by what they compute, and pairs of agents by what the first sends to the second.

    An agent is a channel of a rank: agent ``rank * channels + channel``.
    """

    kind: Ints  # [agents]: which list of computings is its own
    computings: Lists  # a row a stage: seconds
    src: Ints  # [pairs]: agent
    dst: Ints  # [pairs]: agent
    route: Ints  # [pairs]
    label: Ints  # [pairs]: which list of messages is its own; of two lists no two are equal
    messages: Lists  # a row a message: the sender's stage, the receiver's stage, each counted from its own first, bytes

    def with_own_times(self, slowdown: Floats, starts: Floats) -> "LabelledPairs":
        """Return the same with agents that compute so many times as long, and begin at these seconds; [agents].

        Each has a stage before its first one in which it only waits until it begins.
        """
        of_agent, kind = np.unique(np.stack([self.kind, slowdown, starts], axis=1), axis=0, return_inverse=True)
        lists = self.computings.select(of_agent[:, 0].astype(np.int32))
        seconds = lists.rows * np.repeat(of_agent[:, 1], np.diff(lists.first))[:, None]
        computings = Lists(
            lists.first + np.arange(len(lists.first)), np.insert(seconds, lists.first[:-1], of_agent[:, 2:], axis=0)
        )
        later = self.messages._replace(rows=self.messages.rows + np.array([1.0, 1.0, 0.0]))
        return self._replace(kind=kind.reshape(-1).astype(np.int32), computings=computings, messages=later)


def label_cyclic_pairs(cyclic: SymmetricSchedule, sizes: ChunkSizes) -> LabelledPairs | None:
    """Return the channels of a cyclic schedule's ranks, and the pairs of them that send.

    Return None where a message is empty; and where some ranks' chunks are longer than others', unless the schedule is
    cyclic, has one channel, and is of few chunks for each pair and for what each rank computes.
    """
    p, channels, ranks = cyclic.world_size, cyclic.channels, np.arange(cyclic.world_size, dtype=np.int32)
    depends = cyclic.read.is_shifted
    is_uneven = bool(sizes.elements % sizes.chunks and depends.any())
    if sizes.elements < sizes.chunks or (is_uneven and (not cyclic.is_cyclic or channels > 1)):
        return None
    shortest = sizes.elements // sizes.chunks * float(sizes.itemsize)
    nbytes = np.where(depends & is_uneven, shortest, sizes.nbytes(cyclic.read.base, cyclic.count))
    stage, computings = _stages(cyclic, np.where(cyclic.kind > Kind.RECV, sizes.gamma * nbytes, 0.0))
    sends = np.flatnonzero(cyclic.kind == Kind.SEND)
    key = cyclic.peer[sends].astype(np.int64) * channels + cyclic.channel[sends]
    order = np.argsort(key, kind="stable")
    keys, first = np.unique(key[order], return_index=True)
    sends = sends[order]
    rows = np.stack([stage[sends], stage[cyclic.match[sends]], nbytes[sends]], axis=1)
    label, messages = _label(Lists(np.append(first, len(sends)), rows))
    away, channel = keys // channels, (keys % channels)[:, None]
    ends = [at * channels + channel for at in (ranks, cyclic.ranks_at(away, ranks))]
    every = distances(cyclic)
    route = np.searchsorted(every, away)[:, None] + len(every) * ranks
    src, dst, on_route = (numbers.reshape(-1).astype(np.int32) for numbers in (*ends, route))
    kind = np.tile(np.arange(channels, dtype=np.int32), p)
    found = LabelledPairs(kind, computings, src, dst, on_route, np.repeat(label, p), messages)
    if not is_uneven:
        return found
    return _tell_longer_apart(found, cyclic, sizes, sends, np.append(first, len(sends)))


def _stages(cyclic: SymmetricSchedule, seconds: Floats) -> tuple[Ints, Lists]:
    """Return for each operation its stage's number among those of its channel, and what the stages of each compute.

    ``seconds`` is what each operation computes.
    """
    active = find_active_steps(cyclic)
    order = np.argsort(active.channel, kind="stable")
    counts = np.bincount(active.channel, minlength=cyclic.channels)
    first = np.concatenate([[0], np.cumsum(counts)])
    number = np.empty(len(order), np.int32)
    number[order] = np.arange(len(order)) - np.repeat(first[:-1], counts)
    each = np.bincount(active.of_row, weights=seconds, minlength=len(order))
    return number[active.of_row], Lists(first, each[order, None])


def _label(lists: Lists) -> tuple[Ints, Lists]:
    """Return for each list which of the distinct ones it is, and those."""
    number: dict[bytes, int] = {}
    chosen, label = list[int](), list[int]()
    for k, (first, last) in enumerate(zip(lists.first[:-1].tolist(), lists.first[1:].tolist(), strict=True)):
        key = lists.rows[first:last].tobytes()
        if key not in number:
            number[key] = len(number)
            chosen.append(k)
        label.append(number[key])
    return np.array(label, np.int32), lists.select(np.array(chosen, np.int32))


def _tell_longer_apart(
    found: LabelledPairs, cyclic: SymmetricSchedule, sizes: ChunkSizes, sends: LongInts, first: LongInts
) -> LabelledPairs | None:
    """Return pairs of a schedule of one channel, of which all shifted chunks were taken to be short, as they are.

    ``sends[first[k]:first[k + 1]]`` is what each rank sends to the k-th distance. Return None for too many chunks.
    """
    works = np.flatnonzero((cyclic.kind > Kind.RECV) & cyclic.read.is_shifted)[: None if sizes.gamma else 0]
    chunk = (
        cyclic.cycle()[works].astype(np.int64) * cyclic.world_size + cyclic.read.shifts[0][works] % cyclic.world_size
    )
    _, one, which = np.unique(chunk, return_index=True, return_inverse=True)
    if max(int(np.diff(first).max(initial=0)), len(one)) > PATTERN_BITS:
        return None
    of_ranks = _patterns(_is_longer(cyclic, works[one], sizes), np.array([0, len(one)]))[0]
    of_pairs = _patterns(_is_longer(cyclic, sends, sizes), first).reshape(-1)
    label, messages = _with_patterns(found.label, found.messages, of_pairs, sizes.itemsize)
    patterns, kind = np.unique(of_ranks, return_inverse=True)
    stages, stage = len(found.computings.rows), find_active_steps(cyclic).of_row[works]
    more = [np.bincount(stage, pattern >> which & 1, stages) * sizes.gamma * sizes.itemsize for pattern in patterns]
    rows = np.concatenate([found.computings.rows + each[:, None] for each in more])
    computings = Lists(np.arange(len(patterns) + 1) * stages, rows)
    return found._replace(kind=kind.astype(np.int32), computings=computings, label=label, messages=messages)


def _is_longer(cyclic: SymmetricSchedule, entries: LongInts, sizes: ChunkSizes) -> Bools:
    """Return whether the shifted chunk that each entry reads is longer than the shortest; [entries, ranks]."""
    lengths = np.diff(sizes.offsets(cyclic.chunks + cyclic.scratch))
    longer = np.tile(cyclic.by_cycle(lengths > lengths.min()), 2)
    blocks = np.lib.stride_tricks.sliding_window_view(longer, cyclic.world_size, axis=1)
    found = np.zeros((len(entries), cyclic.world_size), np.bool_)
    shifted = cyclic.read.is_shifted[entries]
    found[shifted] = blocks[
        cyclic.cycle()[entries][shifted], cyclic.read.shifts[0][entries][shifted] % cyclic.world_size
    ]
    return found


def _patterns(longer: Bools, first: LongInts) -> Ints:
    """Return the pattern of each list of entries, ``longer[first[k]:first[k + 1]]``, on each rank; [lists, ranks]."""
    counts = np.diff(first)
    found = np.zeros((len(counts), longer.shape[1]), np.int32)
    for place in range(int(counts.max(initial=0))):
        has = np.flatnonzero(counts > place)
        found[has] |= longer[first[has] + place].astype(np.int32) << place
    return found


def _with_patterns(label: Ints, messages: Lists, pattern: Ints, nbytes: float) -> tuple[Ints, Lists]:
    """Return labels, and lists of messages of which those that the pattern of a pair says are ``nbytes`` longer."""
    keys = (label.astype(np.int64) << PATTERN_BITS) + pattern
    distinct, numbers = number_distinct(keys, len(messages.first) << PATTERN_BITS)
    lists = messages.select((distinct >> PATTERN_BITS).astype(np.int32))
    counts = np.diff(lists.first)
    place = np.arange(len(lists.rows)) - np.repeat(lists.first[:-1], counts)
    rows = lists.rows.copy()
    rows[:, 2] += (np.repeat(distinct, counts) >> place & 1) * nbytes
    return numbers, Lists(lists.first, rows)
