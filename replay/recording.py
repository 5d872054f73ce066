"""The recording of a run: the calls and computing of each rank in order, without communication times.

A *call* is a send, a receive, or one rank's part of a collective. Each *stream* of a rank (its host, or a stream of its
GPU) has a log. A log entry records an action of the stream, such as starting a call or waiting for one, and the time
that the stream computed before. A recording can be replayed on any cluster, with any algorithm. The file is JSON with a
schema version.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from enum import IntEnum
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from collectives.checks import MOST_COUNTED, MOST_RANKS, MOST_SECONDS, check_printable
from collectives.errors import InputError
from collectives.input_files import FileBytes
from collectives.records.columns import Column, Columnar, Floats
from collectives.records.files import read_record, write_content
from collectives.spec import find_spec


class CallKind(IntEnum):
    COLLECTIVE = 0
    SEND = 1
    RECV = 2


class Did(IntEnum):
    POST = 0  # started a call without waiting for it
    WAIT = 1  # waited for a call
    BEGIN = 2  # began a span, such as a training step
    END = 3
    SIGNAL = 4  # sent a signal, which other streams can await
    AWAIT = 5  # waited for a signal


class RecordedCall(NamedTuple):
    """A send, a receive, or one rank's part of a collective.

    All parts of a collective have the same ``key``; a send and its receive also share a key. For a collective,
    ``elements`` counts the buffer's elements as in a CollectiveCall, ``group`` is its process group, and ``root`` is a
    group rank. For a message, ``nbytes`` is its size, and ``peer`` is the global rank of the receiver (for a send) or
    of the sender (for a receive).
    """

    rank: int
    kind: int  # a CallKind
    key: int
    nbytes: int  # bytes of the buffer or of the message
    verb: int = 0  # index into ``verbs``, which are collectives such as "all_reduce"
    group: int = 0  # index into ``groups``
    elements: int = 0
    dtype: int = 0  # index into ``dtypes``
    itemsize: int = 1  # bytes of an element
    op: int = 0  # index into ``ops``
    root: int = 0
    peer: int = 0  # the other rank of a message
    tag: int = 0  # a message's tag
    line: int = 0  # index into ``lines``: calls of one line and rank run in order; 0: no line
    location: int = 0  # index into ``locations``: the program's line of the call; 0: unknown


class LogEntry(NamedTuple):
    """An action of a stream, such as starting a call, and the seconds of computing since the previous action."""

    stream: int
    did: int  # a Did
    number: int  # number of a call, of an entry in ``marks``, or of a signal
    seconds: float
    took: float = 0.0  # measured seconds of the action in a real run; 0: unknown


class RankGroup(NamedTuple):
    """The global ranks of a process group, in order of their group ranks."""

    name: str
    ranks: tuple[int, ...]


class ExecutionStream(NamedTuple):
    """A rank's host, or one stream of its GPU. The stream computes for ``tail`` seconds after its last entry."""

    rank: int
    name: str
    tail: float = 0.0  # seconds computed after the last entry


class SourceLine(NamedTuple):
    file: str
    line: int
    text: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.file else "an unknown line"


class Mark(NamedTuple):
    name: str
    step: int = 0


class RecordedCalls(Columnar[RecordedCall]):
    """The calls of a recording as columns. Indexing and iteration return rows."""

    ROW = RecordedCall
    rank = Column(np.int64)
    kind = Column(np.int64)
    key = Column(np.int64)
    nbytes = Column(np.int64)
    verb = Column(np.int64)
    group = Column(np.int64)
    elements = Column(np.int64)
    dtype = Column(np.int64)
    itemsize = Column(np.int64)
    op = Column(np.int64)
    root = Column(np.int64)
    peer = Column(np.int64)
    tag = Column(np.int64)
    line = Column(np.int64)
    location = Column(np.int64)


class LogEntries(Columnar[LogEntry]):
    """The log entries of all streams as columns, ordered by stream and then by time."""

    ROW = LogEntry
    stream = Column(np.int64)
    did = Column(np.int64)
    number = Column(np.int64)
    seconds = Column(np.float64)
    took = Column(np.float64)


@dataclass(repr=False)
class Recording:
    """The calls and compute times of a run's ranks. ``RecordingBuilder`` builds a recording call by call.

    >>> from replay.recording_builder import RecordedCollective, RecordingBuilder
    >>> builder = RecordingBuilder("ring.py", world_size=2)
    >>> for rank in range(2):
    ...     call = builder.collective(rank, "first", RecordedCollective("all_reduce", (0, 1), elements=1024))
    ...     builder.post(rank, call, seconds=1e-3)
    ...     builder.wait(rank, call)
    >>> builder.recording()
    <Recording of ring.py: 2 ranks, 2 calls, where: virtual>
    """

    SCHEMA_VERSION: ClassVar[int] = 1

    title: str  # the program and its arguments
    where: str  # source of the recording: "virtual", "gloo", "nccl", "chakra" or "kineto"
    world_size: int
    calls: RecordedCalls
    entries: LogEntries
    streams: tuple[ExecutionStream, ...]  # a rank's first one is its host
    groups: tuple[RankGroup, ...]
    verbs: tuple[str, ...]
    dtypes: tuple[str, ...]
    ops: tuple[str, ...]
    lines: tuple[str, ...]  # ordered communicators; the first is none: ""
    locations: tuple[SourceLine, ...]  # the first is unknown
    marks: tuple[Mark, ...]
    notes: tuple[str, ...] = ()  # omissions of the recording, one sentence each

    def __repr__(self) -> str:
        return f"<Recording of {self.title}: {self.world_size} ranks, {len(self.calls)} calls, where: {self.where}>"

    def computed(self) -> Floats:
        """Return the seconds that each rank computed, summed over its streams; shape [world_size]."""
        rank = np.array([stream.rank for stream in self.streams], np.int64)
        tails = np.bincount(rank, [stream.tail for stream in self.streams], self.world_size)
        inner = np.bincount(rank[self.entries.stream], self.entries.seconds, self.world_size)
        return np.asarray(tails + inner, np.float64)

    def took(self) -> Floats:
        """Return the seconds that each rank spent computing and in calls, summed over its streams; shape [world_size].

        A virtual run records no time in calls, so the result contains only computing.
        """
        rank = np.array([stream.rank for stream in self.streams], np.int64)
        return self.computed() + np.bincount(rank[self.entries.stream], self.entries.took, self.world_size)

    def location(self, call: int) -> SourceLine:
        return self.locations[int(self.calls.location[call])]

    def describe(self, call: int) -> str:
        """Return a call as text: the collective and its group, or the message's peer and tag, with bytes and line."""
        made = self.calls[call]
        where = f" at {self.locations[made.location]}" if made.location else ""
        if made.kind == CallKind.COLLECTIVE:
            group = self.groups[made.group]
            return f"{self.verbs[made.verb]} of {made.nbytes} bytes in group {group.name!r}{where}"
        to = "send to" if made.kind == CallKind.SEND else "recv from"
        return f"{to} rank {made.peer} of {made.nbytes} bytes, tag {made.tag}{where}"

    def to_dict(self) -> dict[str, Any]:
        """Return the content of the recording's file as plain JSON, with long columns packed."""
        fields_ = {field.name: getattr(self, field.name) for field in fields(Recording)}
        fields_ |= {"calls": self.calls.to_plain(), "entries": self.entries.to_plain()}
        return {"schema_version": self.SCHEMA_VERSION, **fields_}

    def write(self, path: Path | str) -> None:
        """Write the recording to ``path`` as JSON, atomically. Read it with ``read_recording``."""
        write_content(path, self.to_dict())

    def check(self, name: str = "recording") -> None:
        """Raise InputError if the recording is inconsistent. The message begins with ``name``."""
        for problem in _problems(self):
            raise InputError(f"{name}: {problem}")


def read_recording(path: Path | str) -> Recording:
    """Read a recording that ``Recording.write`` wrote. Raise InputError if the file is missing or invalid."""
    recording = read_record(path, Recording, FileBytes.RECORDING)
    recording.check(f"{path}: not a recording")
    return recording


def _problems(recording: Recording) -> Iterator[str]:
    if not 1 <= recording.world_size <= MOST_RANKS:
        yield f"world_size must be between 1 and {MOST_RANKS}, not {recording.world_size}"
    yield from _name_problems(recording)
    yield from _number_problems(recording)
    yield from _call_problems(recording)
    yield from _log_problems(recording)
    yield from _collective_problems(recording)


def _name_problems(recording: Recording) -> Iterator[str]:
    texts = [recording.title, recording.where, *recording.verbs, *recording.dtypes, *recording.ops, *recording.lines]
    texts += [group.name for group in recording.groups] + [mark.name for mark in recording.marks]
    texts += [stream.name for stream in recording.streams]
    for text in texts + [text for location in recording.locations for text in (location.file, location.text)]:
        check_printable("a text", text)
    for name in recording.verbs:
        find_spec(name)
    for number, group in enumerate(recording.groups):
        if len(set(group.ranks)) != len(group.ranks) or not group.ranks:
            yield f"groups.{number}: ranks must be listed once each, not {list(group.ranks)[:8]}"
        if not set(group.ranks) <= set(range(recording.world_size)):
            yield f"groups.{number}: ranks must be at most {recording.world_size - 1}, not {list(group.ranks)[:8]}"
    for number, stream in enumerate(recording.streams):
        if not 0 <= stream.rank < recording.world_size:
            yield f"streams.{number}: rank must be less than {recording.world_size}, not {stream.rank}"
        if not 0 <= stream.tail <= MOST_SECONDS:
            yield f"streams.{number}: tail must be between 0 and {MOST_SECONDS:g} seconds, not {stream.tail}"
    for rank in sorted(set(range(recording.world_size)) - {stream.rank for stream in recording.streams})[:1]:
        yield f"streams: rank {rank} has no stream"
    if not recording.locations or not recording.lines or recording.lines[0] != "":
        yield "locations and lines must begin with an empty entry"


def _number_problems(recording: Recording) -> Iterator[str]:
    calls, entries = recording.calls, recording.entries
    limits: list[tuple[str, npt.NDArray[Any], int]] = [
        ("calls.rank", calls.rank, recording.world_size),
        ("calls.kind", calls.kind, len(CallKind)),
        ("calls.line", calls.line, len(recording.lines)),
        ("calls.location", calls.location, len(recording.locations)),
        ("calls.nbytes", calls.nbytes, MOST_COUNTED),
        ("calls.elements", calls.elements, MOST_COUNTED),
        ("entries.stream", entries.stream, len(recording.streams)),
        ("entries.did", entries.did, len(Did)),
    ]
    collective = calls.kind == CallKind.COLLECTIVE
    known = {"verb": recording.verbs, "group": recording.groups, "op": recording.ops}
    for name, names in known.items():
        limits.append((f"calls.{name} of collectives", getattr(calls, name)[collective], len(names)))
    limits.append(("calls.peer of messages", calls.peer[~collective], recording.world_size))
    for kinds, most in (((Did.POST, Did.WAIT), len(calls)), ((Did.BEGIN, Did.END), len(recording.marks))):
        limits.append(("entries.number", entries.number[np.isin(entries.did, kinds)], most))
    for name, column, limit in limits:
        for at in np.flatnonzero((column < 0) | (column >= limit))[:1].tolist():
            yield f"{name}.{at} must be less than {limit}, not {column[at]}"
    for name in ("seconds", "took"):
        column = getattr(entries, name)
        for at in np.flatnonzero(~((column >= 0) & (column <= MOST_SECONDS)))[:1].tolist():
            yield f"entries.{name}.{at} must be between 0 and {MOST_SECONDS:g} seconds, not {column[at]}"
    for at in np.flatnonzero((calls.itemsize < 1) | (calls.itemsize > 16))[:1].tolist():
        yield f"calls.itemsize.{at} must be between 1 and 16 bytes, not {calls.itemsize[at]}"


def _call_problems(recording: Recording) -> Iterator[str]:
    """Yield an error if the two calls of a message name different ranks, or are two sends or two receives."""
    calls = recording.calls
    messages = np.flatnonzero(calls.kind != CallKind.COLLECTIVE)
    key, kind = calls.key[messages], calls.kind[messages]
    order = np.lexsort((kind, key))
    same = np.flatnonzero(key[order][1:] == key[order][:-1])
    first, second = messages[order[same]], messages[order[same + 1]]
    for at in np.flatnonzero(calls.kind[first] == calls.kind[second])[:1].tolist():
        yield f"calls {first[at]} and {second[at]} both send or both receive message {calls.key[first[at]]}"
    unlike = (calls.rank[first] != calls.peer[second]) | (calls.peer[first] != calls.rank[second])
    for at in np.flatnonzero(unlike)[:1].tolist():
        yield f"calls {first[at]} and {second[at]} belong to one message, but do not name each other's ranks"


def _log_problems(recording: Recording) -> Iterator[str]:
    """Yield errors in the logs, such as a call that is posted twice or by another rank."""
    entries, calls = recording.entries, recording.calls
    if (np.diff(entries.stream) < 0).any():
        yield "entries must be ordered by stream"
    rank = np.array([stream.rank for stream in recording.streams], np.int64)[entries.stream]
    at = np.full(len(calls), -1, np.int64)
    posts = np.flatnonzero(entries.did == Did.POST)
    times = np.bincount(entries.number[posts], minlength=len(calls))
    for call in np.flatnonzero(times > 1)[:1].tolist():
        yield f"call {call} is posted {times[call]} times"
    at[entries.number[posts]] = posts
    of_calls = np.flatnonzero(entries.did <= Did.WAIT)
    call, stream = entries.number[of_calls], entries.stream[of_calls]
    late = (at[call] < 0) | ((entries.stream[at[call]] == stream) & (at[call] > of_calls))
    for entry in of_calls[late][:1].tolist():
        yield f"entries.{entry} waits for call {entries.number[entry]}, which is not posted earlier"
    for entry in of_calls[calls.rank[call] != rank[of_calls]][:1].tolist():
        number = entries.number[entry]
        owner = calls.rank[number]
        yield f"entries.{entry} belongs to rank {rank[entry]}, but its call {number} belongs to rank {owner}"
    signals = entries.number[entries.did == Did.SIGNAL]
    if len(np.unique(signals)) < len(signals):
        yield "entries: a signal is sent twice"


def _collective_problems(recording: Recording) -> Iterator[str]:
    """Yield errors in collectives, such as ranks that pass different roots."""
    calls = recording.calls
    collective = np.flatnonzero(calls.kind == CallKind.COLLECTIVE)
    by_key = collective[np.lexsort((calls.rank[collective], calls.key[collective]))]
    key = calls.key[by_key]
    same = np.flatnonzero(key[1:] == key[:-1])
    first, second = by_key[same], by_key[same + 1]
    for name in ("verb", "group", "root"):
        column = getattr(calls, name)
        for at in np.flatnonzero(column[first] != column[second])[:1].tolist():
            both = (f"rank {calls.rank[call]}: {recording.describe(call)}" for call in (first[at], second[at]))
            yield f"ranks call one collective with a different {name}: {' - '.join(both)}"
    for at in np.flatnonzero(calls.rank[first] == calls.rank[second])[:1].tolist():
        yield f"calls {first[at]} and {second[at]} belong to the same rank and the same collective"
    sizes = np.array([len(group.ranks) for group in recording.groups], np.int64)
    members = np.array([(at, rank) for at, group in enumerate(recording.groups) for rank in group.ranks], np.int64)
    members = members.reshape(-1, 2)
    width = max(1, recording.world_size)
    outside = ~np.isin(calls.group[by_key] * width + calls.rank[by_key], members[:, 0] * width + members[:, 1])
    for call in by_key[outside][:1].tolist():
        yield f"call {call} belongs to rank {calls.rank[call]}, which is not in its group"
    for call in by_key[calls.root[by_key] >= sizes[calls.group[by_key]]][:1].tolist():
        yield f"call {call}: root must be less than {sizes[calls.group[call]]}, not {calls.root[call]}"
