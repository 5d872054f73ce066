"""Pairs of agents labelled by what they send each other: what a partition into like ones is made from."""

from typing import NamedTuple

import numpy as np

from collectives.schedule.cyclic import CyclicSchedule
from collectives.schedule.grid import GridSchedule
from collectives.schedule.relative import RelativeSchedule
from collectives.step import Kind
from simcomm.compiled.kernel.arrays import Floats, Ints, LongInts
from simcomm.compiled.planning.cyclic_plan import distances, find_active_steps
from simcomm.compiled.planning.schedule_plan import ChunkSizes


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


def label_cyclic_pairs(cyclic: CyclicSchedule | GridSchedule, sizes: ChunkSizes) -> LabelledPairs | None:
    """Return the channels of a cyclic schedule's ranks, and the pairs of them that send.

    Return None where ranks' sizes differ, as those of unequal chunks do, or a message is empty.
    """
    p, channels, ranks = cyclic.world_size, cyclic.channels, np.arange(cyclic.world_size, dtype=np.int32)
    if isinstance(cyclic, GridSchedule):
        depends, base = True, cyclic.base  # whether chunks depend on the rank
    else:
        depends, base = bool((cyclic.is_shifted[0] | cyclic.is_shifted[1]).any()), cyclic.base[0]
    if sizes.elements < sizes.chunks or (depends and sizes.elements % sizes.chunks):
        return None
    nbytes = sizes.nbytes(base, cyclic.count)  # a shifted chunk is like the next
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
    return LabelledPairs(kind, computings, src, dst, on_route, np.repeat(label, p), messages)


def _stages(cyclic: RelativeSchedule, seconds: Floats) -> tuple[Ints, Lists]:
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
