"""Extend a recording of some ranks to all ranks: every other rank repeats the calls of a recorded rank.

Training on many similar ranks therefore needs few recorded ranks: one for data and tensor parallelism, and one per
stage for a pipeline. A repeating rank uses its own counterpart of each group. Groups are counterparts if they have the
same size and were created in succession without a common member, such as the groups of one mesh dimension. The distance
between the two ranks of a message stays the same.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from collectives.errors import InputError
from collectives.records.columns import Ints
from replay.recording import (
    CallKind,
    Did,
    ExecutionStream,
    LogEntries,
    RankGroup,
    RecordedCalls,
    Recording,
)

Ranks = tuple[int, ...]


def find_models(only: Sequence[int], world_size: int) -> list[int]:
    """Return the recorded rank that each rank repeats: the highest rank in ``only`` that does not exceed it.

    >>> find_models([0, 2], 4)
    [0, 0, 2, 2]
    """
    return [max(model for model in only if model <= rank) for rank in range(world_size)]


GROWING = ("barrier", "all_gather")  # collectives whose buffers grow with the number of ranks
WIDENED = ("all_reduce", "reduce", "broadcast", *GROWING)


def widen(recording: Recording, world_size: int) -> Recording:
    """Extend a recording to ``world_size`` ranks, which repeat the recorded ranks cyclically.

    This simulates data-parallel training with the same number of samples per rank. Raise InputError unless
    ``world_size`` is a multiple of the recorded number of ranks. Also raise it if a group does not include all ranks,
    or if the recording has calls other than all_reduce, reduce, broadcast, all_gather and barrier.
    """
    few = recording.world_size
    if world_size == few:
        return recording
    if world_size % few or world_size < few:
        raise InputError(f"ranks must be a multiple of the recording's {few}, not {world_size}")
    collectives = recording.calls.kind == CallKind.COLLECTIVE
    verbs = {recording.verbs[verb] for verb in np.unique(recording.calls.verb[collectives]).tolist()}
    others = sorted(verbs.difference(WIDENED)) + ["send and recv"] * (not collectives.all())
    if others:
        raise InputError(
            f"the recording has calls of {', '.join(others)}, whose sizes or peers depend on the number of ranks; only "
            f"{', '.join(WIDENED)} can be extended; record with `ringlab virtual --ranks {world_size}`"
        )
    if any(group.ranks != tuple(range(few)) for group in recording.groups):
        raise InputError("groups of only some ranks cannot be extended to more ranks; record a run with more ranks")
    ranks = tuple(range(world_size))
    grows = np.append(np.isin(recording.verbs, GROWING), False)[np.where(collectives, recording.calls.verb, -1)]
    grown = np.where(grows, world_size // few, 1)
    calls = {
        name: column * grown if name in ("elements", "nbytes") else column
        for name, column in recording.calls.kept.items()
    }
    entries = LogEntries(**{**recording.entries.kept, "took": np.zeros(len(recording.entries))})
    notes = (*recording.notes, f"ranks {few} to {world_size - 1} repeat ranks 0 to {few - 1} cyclically")
    wide = replace(
        recording,
        world_size=world_size,
        calls=RecordedCalls(**calls),
        groups=tuple(group._replace(ranks=ranks) for group in recording.groups),
        entries=entries,
        notes=notes,
    )
    return repeat_ranks(wide, [rank % few for rank in range(world_size)], [ranks])


def repeat_ranks(recording: Recording, models: Sequence[int], made_groups: Sequence[Ranks]) -> Recording:
    """Return the recording of all ranks, in which rank r repeats the recorded rank ``models[r]``.

    ``made_groups`` lists the ranks of all groups in order of creation. Raise InputError if a repeated call's group has
    no counterpart that contains the repeating rank.
    """
    groups = _Groups(recording, made_groups)
    calls, entries, streams = list[dict[str, Ints]](), list[dict[str, Any]](), list[ExecutionStream]()
    first_call = first_signal = 0
    stream_rank = np.array([stream.rank for stream in recording.streams])
    owner = stream_rank[recording.entries.stream]
    is_call, is_signal = (
        np.isin(recording.entries.did, kinds) for kinds in ((Did.POST, Did.WAIT), (Did.SIGNAL, Did.AWAIT))
    )
    signals = int(recording.entries.number[is_signal].max(initial=-1)) + 1
    positions = {rank: np.flatnonzero(recording.calls.rank == rank) for rank in set(models)}
    for rank, model in enumerate(models):
        mine = positions[model]
        calls.append(_calls(recording, mine, rank, groups))
        renumbered = np.zeros(len(recording.calls), np.int64)
        renumbered[mine] = first_call + np.arange(len(mine))
        for number in np.flatnonzero(stream_rank == model).tolist():
            is_kept = (owner == model) & (recording.entries.stream == number)
            columns = {name: column[is_kept] for name, column in recording.entries.kept.items()}
            columns["number"] = columns["number"].astype(np.int64)  # columns can have fewer bytes
            shifted = np.where(is_signal[is_kept], columns["number"] + first_signal, columns["number"])
            columns["number"] = np.where(is_call[is_kept], renumbered[columns["number"] * is_call[is_kept]], shifted)
            columns["stream"] = np.full(int(is_kept.sum()), len(streams))
            streams.append(recording.streams[number]._replace(rank=rank))
            entries.append(columns)
        first_call, first_signal = first_call + len(mine), first_signal + signals
    joined = {name: np.concatenate([call[name] for call in calls]) for name in calls[0]}
    joined["key"] = _keys(joined)
    repeated_recording = replace(
        recording,
        calls=RecordedCalls(**joined),
        entries=LogEntries(**{name: np.concatenate([entry[name] for entry in entries]) for name in entries[0]}),
        streams=tuple(streams),
        groups=tuple(groups.groups),
    )
    repeated_recording.check()
    return repeated_recording


class _Groups:
    """The process groups of all ranks: the recorded groups, and their counterparts for ranks that were not recorded."""

    def __init__(self, recording: Recording, made: Sequence[Ranks]) -> None:
        self.recorded = recording.groups
        self.groups = dict.fromkeys(recording.groups)
        self._numbers = {group: number for number, group in enumerate(self.groups)}
        self._alike = {ranks: family for family in _families(made) for ranks in family}

    def like(self, number: int, rank: int) -> int:
        """Return the number of the group that ``rank`` uses in place of the recorded group ``number``."""
        group = self.recorded[number]
        family = [group.ranks, *self._alike.get(group.ranks, ())]
        ranks = next((ranks for ranks in family if rank in ranks), None)
        if ranks is None:
            raise InputError(
                f"no group of rank {rank} corresponds to the group {list(group.ranks)[:8]}; add the rank to --only"
            )
        counterpart = RankGroup(group.name, ranks)
        self.groups.setdefault(counterpart)
        return self._numbers.setdefault(counterpart, len(self._numbers))


def _families(made: Sequence[Ranks]) -> Iterator[list[Ranks]]:
    """Yield lists of groups that replace each other: created in succession, of one size, without a common member.

    >>> [*_families([(0, 1), (2, 3), (0, 2), (1, 3)])]
    [[(0, 1), (2, 3)], [(0, 2), (1, 3)]]
    """
    family = list[Ranks]()
    for ranks in made:
        if family and (len(family[0]) != len(ranks) or any(set(ranks) & set(group) for group in family)):
            yield family
            family = []
        family.append(ranks)
    yield family


def _calls(recording: Recording, mine: Ints, rank: int, groups: _Groups) -> dict[str, Ints]:
    """Return the calls at the indices ``mine``, changed to the rank, groups and peers of ``rank``."""
    columns = {name: column[mine] for name, column in recording.calls.kept.items()}
    is_collective = columns["kind"] == CallKind.COLLECTIVE
    distance = rank - columns["rank"]
    columns["rank"] = np.full(len(mine), rank)
    columns["peer"] = np.where(is_collective, columns["peer"], (columns["peer"] + distance) % recording.world_size)
    numbers = {number: groups.like(number, rank) for number in np.unique(columns["group"][is_collective]).tolist()}
    columns["group"] = np.array([numbers.get(number, 0) for number in columns["group"].tolist()], np.int64)
    return columns


def _keys(calls: dict[str, Ints]) -> Ints:
    """Return a key for each call. The k-th calls of a group share a key, and so do a pair's k-th send and receive."""
    counts, keys = Counter[tuple[int, ...]](), dict[tuple[int, ...], int]()
    numbers = []
    names = ("kind", "rank", "peer", "tag", "group")
    for kind, rank, peer, tag, group in zip(*(calls[name].tolist() for name in names), strict=True):
        ends = (rank, peer) if kind == CallKind.SEND else (peer, rank)
        pair = (-1, group) if kind == CallKind.COLLECTIVE else (tag, *ends)
        counts[kind, rank, *pair] += 1
        numbers.append(keys.setdefault((*pair, counts[kind, rank, *pair]), len(keys)))
    return np.array(numbers, np.int64)
