"""Prepare the calls of a recording for a replay: add missing ranks to collectives, and group the collectives.

Logs are split into segments. A segment contains the calls that a stream posts and then waits for without computing in
between, or a single log entry of another type. A *blocking* call is posted and awaited in the same segment, and nowhere
else.
"""

from dataclasses import dataclass

import numpy as np

from collectives.records.columns import Bools, Ints
from replay.recording import CallKind, Did, Recording
from replay.simulation.templates import Shape

NEVER = -1  # the segment of a call that is not posted, or not awaited


@dataclass(frozen=True)
class Segments:
    """The segments of all streams as arrays, and the segments in which each call is posted and awaited."""

    first: Ints  # [segments]: first entry
    stream: Ints  # [segments]
    did: Ints  # [segments]: kind of the first entry
    posted: Ints  # [calls]: segment that posts the call, or NEVER
    post_entry: Ints  # [calls]: entry that posts the call, or NEVER
    wait_call: Ints  # [waits]: awaited calls, once per stream
    wait_segment: Ints  # [waits]: their segments
    blocking: Bools  # [calls]
    alone: Bools  # [calls]: blocking, and alone in its segment

    def __len__(self) -> int:
        return len(self.first)


def find_segments(recording: Recording) -> Segments:
    entries, calls = recording.entries, len(recording.calls)
    did, number, stream = entries.did, entries.number, entries.stream
    of_call = did <= Did.WAIT
    begins = np.ones(len(did), np.bool_)
    begins[1:] = (stream[1:] != stream[:-1]) | (entries.seconds[1:] > 0) | ~of_call[1:] | ~of_call[:-1]
    begins[1:] |= (did[1:] == Did.POST) & (did[:-1] == Did.WAIT)
    segment = np.cumsum(begins) - 1
    first = np.flatnonzero(begins)
    posts, waits = np.flatnonzero(did == Did.POST), np.flatnonzero(did == Did.WAIT)
    posted, post_entry = np.full(calls, NEVER), np.full(calls, NEVER)
    posted[number[posts]], post_entry[number[posts]] = segment[posts], posts
    _, once = np.unique(number[waits] * max(1, len(recording.streams)) + stream[waits], return_index=True)
    waits = waits[np.sort(once)]
    wait_call, wait_segment = number[waits], segment[waits]
    times = np.bincount(wait_call, minlength=calls)
    blocking = np.zeros(calls, np.bool_)
    blocking[wait_call] = (posted[wait_call] == wait_segment) & (times[wait_call] == 1)
    posts_in = np.bincount(segment[posts], minlength=len(first))
    waits_in = np.bincount(wait_segment, minlength=len(first))
    alone = blocking & (posted >= 0)
    alone[alone] = (posts_in[posted[alone]] == 1) & (waits_in[posted[alone]] == 1)
    return Segments(
        first=first,
        stream=stream[first],
        did=did[first],
        posted=posted,
        post_entry=post_entry,
        wait_call=wait_call,
        wait_segment=wait_segment,
        blocking=blocking,
        alone=alone,
    )


@dataclass(frozen=True)
class ReplayedCalls:
    """All calls as arrays: the recorded calls, then a call for each rank that is missing in a collective.

    Collectives are numbered in the order of their keys.
    """

    rank: Ints  # [calls]
    is_collective: Bools  # [calls]
    posted: Ints  # [calls]: the segment, or NEVER
    member: Ints  # [calls]: rank in the group of a collective
    collective: Ints  # [calls]: number of the collective, or NEVER for a message
    shapes: tuple[Shape, ...]
    groups: tuple[tuple[int, ...], ...]  # global ranks of each group of the recording
    shape: Ints  # [collectives]: index into ``shapes``
    group: Ints  # [collectives]
    key: Ints  # [collectives]
    first_part: Ints  # [collectives + 1]: index into ``parts``
    parts: Ints  # calls ordered by collective and group rank
    send: Ints  # [messages]: call, or NEVER if it is missing
    recv: Ints  # [messages]


def find_calls(recording: Recording, segments: Segments) -> ReplayedCalls:
    """Return the recorded calls, and an added call for each rank that is missing in a collective of its group."""
    calls = recording.calls
    is_collective = calls.kind == CallKind.COLLECTIVE
    collectives = np.flatnonzero(is_collective)
    _, first, collective_of_own = np.unique(calls.key[collectives], return_index=True, return_inverse=True)
    group = calls.group[collectives[first]]
    sizes = np.array([len(group.ranks) for group in recording.groups], np.int64)
    first_part = np.append(0, np.cumsum(sizes[group]))
    member_of_own = _members(recording, calls.group[collectives], calls.rank[collectives])
    parts = np.full(first_part[-1], NEVER)
    parts[first_part[collective_of_own] + member_of_own] = collectives
    missing = np.flatnonzero(parts == NEVER)
    collective_of_missing = np.searchsorted(first_part, missing, side="right") - 1
    member_of_missing = missing - first_part[collective_of_missing]
    parts[missing] = len(calls) + np.arange(len(missing))
    member, collective = np.zeros(len(calls), np.int64), np.full(len(calls), NEVER)
    member[collectives], collective[collectives] = member_of_own, collective_of_own
    shapes, shape = _shapes(recording, collectives, collective_of_own, first)
    flat = np.concatenate([np.array(group.ranks, np.int64) for group in recording.groups] or [np.zeros(0, np.int64)])
    begins = np.append(0, np.cumsum(sizes))
    send, recv = _messages(recording)
    return ReplayedCalls(
        rank=np.append(calls.rank, flat[begins[group[collective_of_missing]] + member_of_missing]),
        is_collective=np.append(is_collective, np.ones(len(missing), np.bool_)),
        posted=np.append(segments.posted, np.full(len(missing), NEVER)),
        member=np.append(member, member_of_missing),
        collective=np.append(collective, collective_of_missing),
        shapes=shapes,
        groups=tuple(group.ranks for group in recording.groups),
        shape=shape,
        group=group,
        key=calls.key[collectives[first]],
        first_part=first_part,
        parts=parts,
        send=send,
        recv=recv,
    )


def _members(recording: Recording, group: Ints, rank: Ints) -> Ints:
    """Return the group rank of each global rank ``rank[i]`` in the group with index ``group[i]``."""
    width = recording.world_size
    codes = np.array([at * width + rank for at, each in enumerate(recording.groups) for rank in each.ranks], np.int64)
    members = np.array([member for each in recording.groups for member in range(len(each.ranks))], np.int64)
    order = np.argsort(codes, kind="stable")
    return np.asarray(members[order[np.searchsorted(codes[order], group * width + rank)]], np.int64)


def _shapes(recording: Recording, collectives: Ints, collective: Ints, first: Ints) -> tuple[tuple[Shape, ...], Ints]:
    """Return the distinct shapes of all collectives, and the index of each collective's shape.

    The ranks of a collective may pass different numbers of elements. Its shape has the largest.
    """
    calls, lead = recording.calls, collectives[first]
    elements = np.zeros(len(first), np.int64)
    np.maximum.at(elements, collective, calls.elements[collectives])
    sizes = np.array([len(group.ranks) for group in recording.groups], np.int64)[calls.group[lead]]
    columns = (calls.verb[lead], sizes, calls.root[lead], elements, calls.itemsize[lead], calls.op[lead])
    distinct, shape = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
    shapes = tuple(
        Shape(recording.verbs[verb], ranks, root, number, itemsize, recording.ops[op])
        for verb, ranks, root, number, itemsize, op in distinct.tolist()
    )
    return shapes, shape.reshape(-1)


def _messages(recording: Recording) -> tuple[Ints, Ints]:
    """Return the call number of each message's send and of its receive. Messages are ordered by key."""
    calls = recording.calls
    halves = np.flatnonzero(calls.kind != CallKind.COLLECTIVE)
    _, message = np.unique(calls.key[halves], return_inverse=True)
    number = int(message.max(initial=-1)) + 1
    ends = []
    for kind in (CallKind.SEND, CallKind.RECV):
        end, which = np.full(number, NEVER), calls.kind[halves] == kind
        end[message[which]] = halves[which]
        ends.append(end)
    return ends[0], ends[1]
