"""Check that rank programs follow the rules. Each rule returns the first operation that breaks it.

The operations are columns, for all ranks or for one rank that represents all. Messages are matched first: on each
channel, the k-th send from rank a to rank b matches the k-th receive at b from a.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from collectives.schedule.schedule import Bools, Ints, OperationColumns, ProgramCall
from collectives.step import Kind

Keys = npt.NDArray[np.int64]


def receives(kind: npt.NDArray[Any]) -> Bools:
    return np.asarray((kind == Kind.RECV) | (kind == Kind.RECV_REDUCE))


def pair_keys(columns: OperationColumns, world_size: int, channels: int) -> Keys:
    """Return an integer for each operation, by which operations sort by sender, then receiver, then channel."""
    rank, peer, is_send = columns.rank.astype(np.int64), columns.peer, columns.kind == Kind.SEND
    src, dst = np.where(is_send, rank, peer), np.where(is_send, peer, rank)
    return np.asarray((src * world_size + dst) * channels + columns.channel)


def match_halves(kind: npt.NDArray[Any], key: Keys) -> Ints:
    """Return the index of each operation's match: the k-th send with a key matches the k-th receive with this key.

    The index is -1 for local operations, and for a send or a receive without a match.
    """
    sends, others = (_by_key(which, key) for which in (kind == Kind.SEND, receives(kind)))
    match = np.full(len(kind), -1, np.int32)
    if not np.array_equal(key[sends], key[others]):
        send_keys, two = (_with_occurrence(key[half], len(kind)) for half in (sends, others))
        _, here, other_places = np.intersect1d(send_keys, two, assume_unique=True, return_indices=True)
        sends, others = sends[here], others[other_places]
    match[sends], match[others] = others, sends
    return match


def _by_key(which: Bools, key: Keys) -> Keys:
    index = np.flatnonzero(which)
    return index[np.argsort(key[index], kind="stable")]


def _with_occurrence(keys: Keys, most: int) -> Keys:
    """Return ``keys * most + k`` for entries whose key occurred k times before them. ``keys`` must be sorted."""
    return np.asarray(keys * most + np.arange(len(keys)) - np.searchsorted(keys, keys))


def ends_agree(call: ProgramCall, counts: tuple[Ints, Ints], chunks: tuple[Ints, Ints]) -> Bools:
    """Return a boolean mask of the messages whose send and receive have the same count and the same chunk.

    In an all_to_all, the chunks may differ. ``counts`` and ``chunks`` are pairs of arrays: for sends, and for receives.
    """
    same = call.algorithm.spec.moves | same_chunks(*chunks, call.chunks)
    return np.asarray(same & (counts[0] == counts[1]))


def same_chunks(chunk: Ints, other: Ints, chunks: int) -> Bools:
    """Return a boolean mask: whether ``chunk[i]`` and ``other[i]`` are equal modulo ``chunks``, and so in size."""
    return np.asarray((chunk - other) % chunks == 0)


def first_mismatch(columns: OperationColumns, call: ProgramCall, key: Keys) -> int | None:
    """Return the index of the first operation that has no match or differs from its match. None if all match.

    Operations are ordered by key. For equal keys, operations that differ come before operations without a match.
    """
    alone = (columns.match < 0) & (columns.kind < Kind.COPY)
    sends = np.flatnonzero((columns.kind == Kind.SEND) & ~alone)
    receives = columns.match[sends]
    counts, chunks = (columns.count[sends], columns.count[receives]), (columns.chunk[sends], columns.into[receives])
    wrong = np.append(np.flatnonzero(alone), sends[~ends_agree(call, counts, chunks)])
    return int(wrong[np.lexsort((wrong, alone[wrong], key[wrong]))[0]]) if len(wrong) else None


Longs = npt.NDArray[np.int64]
DIFFERENT_CHUNKS = "both must be the same chunk of the buffer, because data keeps its place"


class Violation(NamedTuple):
    """An operation that breaks a rule."""

    at: int  # index in the columns
    problem: str


def first_violation(columns: OperationColumns, call: ProgramCall) -> Violation | None:
    """Return the first operation that breaks a rule, or None if there is none.

    No rule compares ranks, so ``columns`` can contain a subset of the ranks.
    """
    violation = _first(rule(columns, call) for rule in OF_ONE)
    sound = columns if violation is None else columns.head(violation.at)  # the other rules require valid numbers
    return _first(rule(sound, call) for rule in OF_SEVERAL) or violation


def _first(violations: Iterable[Violation | None]) -> Violation | None:
    return min(
        (violation for violation in violations if violation is not None),
        key=lambda violation: violation.at,
        default=None,
    )


def _where(broken: Bools, problem: Callable[[int], str]) -> Violation | None:
    index = int(broken.argmax()) if len(broken) else 0
    return Violation(index, problem(index)) if len(broken) and broken[index] else None


def _count_is_positive(columns: OperationColumns, call: ProgramCall) -> Violation | None:
    return _where(columns.count < 1, lambda _: "count must be at least 1")


def _peer_exists(columns: OperationColumns, call: ProgramCall) -> Violation | None:
    absent = (columns.kind < Kind.COPY) & ((columns.peer < 0) | (columns.peer >= call.world_size))
    return _where(absent, lambda at: f"rank {columns.peer[at]} does not exist; ranks are 0..{call.world_size - 1}")


def _peer_is_another(columns: OperationColumns, call: ProgramCall) -> Violation | None:
    return _where(columns.peer == columns.rank, lambda _: "a rank never sends to itself; use copy or reduce")


def _local_data_keeps_its_place(columns: OperationColumns, call: ProgramCall) -> Violation | None:
    if call.algorithm.spec.moves:
        return None
    local = columns.kind >= Kind.COPY
    return _where(local & ~same_chunks(columns.chunk, columns.into, call.chunks), lambda _: DIFFERENT_CHUNKS)


def _chunks_exist(columns: OperationColumns, call: ProgramCall) -> Violation | None:
    def problem(at: int) -> str:
        ends = [int(end) for first in _first_chunks(columns) for end in (first[at], first[at] + columns.count[at] - 1)]
        outside = next(end for end in ends if not 0 <= end < call.total)
        scratch = f", the last {call.scratch} of them scratch" if call.scratch else ""
        return f"chunk {outside} does not exist; chunks are 0..{call.total - 1}{scratch}"

    first = _first_chunks(columns)
    absent = [(chunk < 0) | (columns.count > call.total - chunk) for chunk in first]
    return _where(absent[0] | absent[1], problem)


def _chunks_lie_together(columns: OperationColumns, call: ProgramCall) -> Violation | None:
    across = [(chunk < call.chunks) & (columns.count > call.chunks - chunk) for chunk in _first_chunks(columns)]
    return _where(across[0] | across[1], lambda _: "chunks must not span both buffer and scratch")


def _first_chunks(columns: OperationColumns) -> tuple[Ints, Ints]:
    """Return two arrays: the first chunk that each operation reads, and the first chunk that it writes.

    For a send or a receive, both are the same chunk.
    """
    return columns.chunk, np.where(columns.kind == Kind.SEND, columns.chunk, columns.into)


def _writes_are_apart(columns: OperationColumns, call: ProgramCall) -> Violation | None:
    step = _step_numbers(columns)
    writes = _crowded_writes(columns, step, call.total)
    if not len(writes):
        return None
    index, chunk = _chunks_of(writes, columns.into[writes], columns.count[writes])
    order = np.lexsort((index, chunk, step[index]))
    index, chunk = index[order], chunk[order]
    reduces = columns.kind[index] == Kind.RECV_REDUCE
    again = (chunk[1:] == chunk[:-1]) & (step[index[1:]] == step[index[:-1]]) & ~(reduces[1:] & reduces[:-1])
    return _first_use(
        index[1:][again], chunk[1:][again], lambda at, chunk: f"chunk {chunk} is written twice in one step"
    )


def _step_numbers(columns: OperationColumns) -> Longs:
    changes = [column[1:] != column[:-1] for column in (columns.rank, columns.channel, columns.step)]
    return np.append(0, np.cumsum(np.logical_or.reduce(changes)))[: len(columns.rank)]


def _crowded_writes(columns: OperationColumns, step: Longs, total: int) -> Longs:
    writes = np.flatnonzero(columns.kind != Kind.SEND)
    together = step[writes[1:]] == step[writes[:-1]]
    if not together.any():
        return writes[:0]
    writes = writes[(np.append(together, False) | np.append(False, together))[: len(writes)]]
    first = step[writes] * total + columns.into[writes]
    order = np.argsort(first, kind="stable")
    reach = np.maximum.accumulate(first[order] + columns.count[writes[order]])
    crowded = step[writes[order[1:]]][first[order[1:]] < reach[:-1]]
    chosen: Longs = writes[np.isin(step[writes], crowded)] if len(crowded) else writes[:0]
    return chosen


def _channels_are_apart(columns: OperationColumns, call: ProgramCall) -> Violation | None:
    channels = int(columns.channel.max(initial=0)) + 1
    if channels == 1 or _lie_side_by_side(columns, channels):
        return None
    everything, local = np.arange(len(columns.kind)), np.flatnonzero(columns.kind >= Kind.COPY)
    touched = (
        _chunks_of(everything, columns.chunk, columns.count),
        _chunks_of(local, columns.into[local], columns.count[local]),
    )
    index, chunk = (np.concatenate(both) for both in zip(*touched, strict=True))
    owned = (columns.rank[index] * np.int64(call.total) + chunk) * channels + columns.channel[index]
    ordered = np.sort(owned)  # numpy.unique hashes integers, which takes several times as long
    shared = (ordered[1:] // channels == ordered[:-1] // channels) & (ordered[1:] != ordered[:-1])
    if not shared.any():
        return None
    contested = np.isin(owned // channels, ordered[1:][shared] // channels)
    index, chunk, owned = index[contested], chunk[contested], owned[contested]
    order = np.lexsort((index, owned // channels))
    index, chunk, owned = index[order], chunk[order], owned[order]
    first = np.searchsorted(owned // channels, owned // channels)  # a chunk belongs to the channel that uses it first
    owner = owned[first] % channels
    late = owned % channels != owner

    def problem(use: int, chunk: int) -> str:
        return f"channel {owner[late][use]} also uses chunk {chunk}; channels of a rank must use different chunks"

    return _first_use(index[late], chunk[late], problem)


def _lie_side_by_side(columns: OperationColumns, channels: int) -> bool:
    owner = columns.rank.astype(np.int64) * channels + columns.channel
    agents = int(owner.max(initial=0)) // channels * channels + channels
    low, high = np.full(agents, np.iinfo(np.int64).max), np.zeros(agents, np.int64)
    for first in _first_chunks(columns):
        np.minimum.at(low, owner, first)
        np.maximum.at(high, owner, first.astype(np.int64) + columns.count)
    begins, ends = low.reshape(-1, channels), high.reshape(-1, channels)
    order = np.argsort(begins, axis=1)
    begins, ends = (np.take_along_axis(column, order, axis=1) for column in (begins, ends))
    return bool((ends[:, :-1] <= begins[:, 1:]).all())


def _chunks_of(index: Longs, first: Ints, count: Ints) -> tuple[Longs, Longs]:
    """Return two arrays with one entry for each chunk that an operation uses: the operation and the chunk."""
    each = np.repeat(np.arange(len(first)), count)
    return index[each], first[each] + np.arange(len(each)) - np.repeat(np.cumsum(count) - count, count)


def _first_use(index: Longs, chunk: Longs, problem: Callable[[int, int], str]) -> Violation | None:
    """Return the violation of the first operation at its first chunk, or None if the arrays are empty."""
    if not len(index):
        return None
    use = int(np.lexsort((chunk, index))[0])
    return Violation(int(index[use]), problem(use, int(chunk[use])))


OF_ONE = (  # rules for a single operation
    _count_is_positive,
    _peer_exists,
    _peer_is_another,
    _local_data_keeps_its_place,
    _chunks_exist,
    _chunks_lie_together,
)
OF_SEVERAL = (_writes_are_apart, _channels_are_apart)
