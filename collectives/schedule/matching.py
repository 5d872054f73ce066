"""Which send meets which receive: the k-th send from a to b on a channel meets the k-th receive at b from a on it."""

from typing import Any

import numpy as np
import numpy.typing as npt

from collectives.schedule.call import ProgramCall
from collectives.schedule.table import Bools, Columns, Ints
from collectives.step import Kind

Keys = npt.NDArray[np.int64]


def receives(kind: npt.NDArray[Any]) -> Bools:
    """Return which of these kinds of operations receive."""
    return np.asarray((kind == Kind.RECV) | (kind == Kind.RECV_REDUCE))


def pair_keys(columns: Columns, world_size: int, channels: int) -> Keys:
    """Return for each operation a number for its sender, receiver and channel, in that order of weight."""
    rank, peer, is_send = columns.rank.astype(np.int64), columns.peer, columns.kind == Kind.SEND
    src, dst = np.where(is_send, rank, peer), np.where(is_send, peer, rank)
    return np.asarray((src * world_size + dst) * channels + columns.channel)


def match_halves(kind: npt.NDArray[Any], key: Keys) -> Ints:
    """Return for each operation the index of the one at its other end, the k-th of a key with the k-th of the same.

    It is -1 for local operations, and for halves of messages that have no other half.
    """
    sends, others = (_by_key(which, key) for which in (kind == Kind.SEND, receives(kind)))
    match = np.full(len(kind), -1, np.int32)
    if not np.array_equal(key[sends], key[others]):
        one, two = (_with_place(key[half], len(kind)) for half in (sends, others))
        _, here, there = np.intersect1d(one, two, assume_unique=True, return_indices=True)
        sends, others = sends[here], others[there]
    match[sends], match[others] = others, sends
    return match


def _by_key(which: Bools, key: Keys) -> Keys:
    """Return the indices of some operations by key, those of one key as they come."""
    index = np.flatnonzero(which)
    return index[np.argsort(key[index], kind="stable")]


def _with_place(keys: Keys, most: int) -> Keys:
    """Return each of some sorted keys together with its place, below ``most``, among those of the same key."""
    return np.asarray(keys * most + np.arange(len(keys)) - np.searchsorted(keys, keys))


def ends_agree(call: ProgramCall, counts: tuple[Ints, Ints], chunks: tuple[Ints, Ints]) -> Bools:
    """Return which messages have ends that speak of as many chunks and, where data keeps its place, of the same.

    Of each pair of arrays, one entry a message, the first is what is sent and the second where it lands.
    """
    same = call.algorithm.spec.moves | same_places(*chunks, call.chunks)
    return np.asarray(same & (counts[0] == counts[1]))


def same_places(one: Ints, other: Ints, chunks: int) -> Bools:
    """Return ``collectives.step.same_place`` of each two entries."""
    return np.asarray((one - other) % chunks == 0)


def first_mismatch(columns: Columns, call: ProgramCall, key: Keys) -> int | None:
    """Return the operation of the lowest key that has no other end, or sends what its other end does not speak of.

    None where all is well. Of one key, messages whose ends disagree come first.
    """
    alone = (columns.match < 0) & (columns.kind < Kind.COPY)
    sends = np.flatnonzero((columns.kind == Kind.SEND) & ~alone)
    there = columns.match[sends]
    counts, chunks = (columns.count[sends], columns.count[there]), (columns.chunk[sends], columns.into[there])
    found = np.append(np.flatnonzero(alone), sends[~ends_agree(call, counts, chunks)])
    return int(found[np.lexsort((found, alone[found], key[found]))[0]]) if len(found) else None
