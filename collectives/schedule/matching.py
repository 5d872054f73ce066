"""Which send meets which receive: the k-th send from a to b on a channel meets the k-th receive at b from a on it."""

from typing import Any

import numpy as np
import numpy.typing as npt

from collectives.schedule.call import ProgramCall
from collectives.schedule.table import Bools, Ints, OperationColumns
from collectives.step import Kind

Keys = npt.NDArray[np.int64]


def receives(kind: npt.NDArray[Any]) -> Bools:
    """Return which of these kinds of operations receive."""
    return np.asarray((kind == Kind.RECV) | (kind == Kind.RECV_REDUCE))


def pair_keys(columns: OperationColumns, world_size: int, channels: int) -> Keys:
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
        one, two = (_with_occurrence(key[half], len(kind)) for half in (sends, others))
        _, here, there = np.intersect1d(one, two, assume_unique=True, return_indices=True)
        sends, others = sends[here], others[there]
    match[sends], match[others] = others, sends
    return match


def _by_key(which: Bools, key: Keys) -> Keys:
    """Return the indices of some operations by key, those of one key as they come."""
    index = np.flatnonzero(which)
    return index[np.argsort(key[index], kind="stable")]


def _with_occurrence(keys: Keys, most: int) -> Keys:
    """Return one number for each of some sorted keys: ``keys * most`` and how many equal keys come before it."""
    return np.asarray(keys * most + np.arange(len(keys)) - np.searchsorted(keys, keys))


def ends_agree(call: ProgramCall, counts: tuple[Ints, Ints], chunks: tuple[Ints, Ints]) -> Bools:
    """Return for each message whether send and receive have the same count and, unless the spec moves data, chunk.

    ``counts`` and ``chunks`` are arrays with one entry a message: the send's, then the receive's.
    """
    same = call.algorithm.spec.moves | same_chunks(*chunks, call.chunks)
    return np.asarray(same & (counts[0] == counts[1]))


def same_chunks(one: Ints, other: Ints, chunks: int) -> Bools:
    """Return which entries, scratch included, stand for the same chunk of the buffer; these are equally large.

    >>> same_chunks(np.array([1, 1], np.int32), np.array([5, 6], np.int32), chunks=4).tolist()
    [True, False]
    """
    return np.asarray((one - other) % chunks == 0)


def first_mismatch(columns: OperationColumns, call: ProgramCall, key: Keys) -> int | None:
    """Return the index of the first operation without a match, or of the first send that disagrees with its receive.

    None if there is neither. First is the lowest key; of one key, sends that disagree come before the unmatched.
    """
    alone = (columns.match < 0) & (columns.kind < Kind.COPY)
    sends = np.flatnonzero((columns.kind == Kind.SEND) & ~alone)
    there = columns.match[sends]
    counts, chunks = (columns.count[sends], columns.count[there]), (columns.chunk[sends], columns.into[there])
    found = np.append(np.flatnonzero(alone), sends[~ends_agree(call, counts, chunks)])
    return int(found[np.lexsort((found, alone[found], key[found]))[0]]) if len(found) else None
