"""Write a trace as a JSON file in the Trace Event Format, for Perfetto and chrome://tracing.

Source of the format: Google, "Trace Event Format", 2016. Each rank is a process. Slices of one track must nest, so
overlapping slices of a rank are put on separate tracks. An arrow connects a send with its receive. Perfetto hangs if a
file has too many slices or arrows (github.com/google/perfetto, issues 3224 and 7296), so their numbers are limited. The
file says how many are omitted. Times are rounded to nanoseconds, as in Perfetto.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from collectives.output_files import write_text
from collectives.records.columns import Ints
from collectives.records.link_loads import link_loads
from collectives.records.messages import Messages
from collectives.records.trace import Trace
from collectives.records.waits import critical_path
from viz.captions import check_something_happens, describe_trace
from viz.file_types import check_file

MOST_MESSAGES = 100_000  # maximum messages of a trace; each is shown as two slices
MOST_ARROWS = 5_000
COUNTERS = 24  # links with a counter: those with the highest utilization
SHORTEST_ARROW = 2  # nanoseconds: one end at the first, the other at the last of a slice

Event = dict[str, Any]


class EventSlice(NamedTuple):
    """A slice and the wait before it, with times in nanoseconds."""

    name: str
    category: str
    posted: int  # start of its wait
    begin: int
    end: int
    wait: str  # name of the wait
    args: Event
    arrow: int = -1  # number of the arrow that begins or ends here


def write_perfetto(traces: Trace | Sequence[Trace], path: Path | str) -> None:
    """Write a trace to a file for ui.perfetto.dev and chrome://tracing. Several traces appear one below the other.

    Raise InputError if the suffix is not ``.perfetto.json`` or a trace is empty.

    >>> from tempfile import TemporaryDirectory
    >>> from collectives import Message
    >>> trace = Trace("one message", "predicted", 2, elapsed=1.0, messages=[Message(0, 1, 0, 0, 1000, 0.0, 1.0)])
    >>> with TemporaryDirectory() as folder:
    ...     write_perfetto(trace, Path(folder, "one.perfetto.json"))
    ...     len(json.loads(Path(folder, "one.perfetto.json").read_text())["traceEvents"])
    14
    """
    path = check_file(path, "a trace for Perfetto")
    several = [traces] if isinstance(traces, Trace) else list(traces)
    for trace in several:
        check_something_happens(trace)
    numbers, events, notes = count(1), list[Event](), list[str]()
    for trace in several:
        prefix = f"{trace.kind}, " if len(several) > 1 else ""
        converted = _TraceEvents(trace, prefix, numbers)
        events += converted.events
        notes.append(f"{trace.title}, {describe_trace(trace)}{converted.left_out}")
    events += _describe_process(next(numbers), "  |  ".join(notes), -1)
    content = {"traceEvents": events, "displayTimeUnit": "ns", "otherData": {"notes": notes}}
    write_text(path, json.dumps(content, allow_nan=False, separators=(",", ":")))


class _TraceEvents:
    """Builds the events of one trace. ``numbers`` yields unique IDs for processes, tracks and arrows."""

    def __init__(self, trace: Trace, prefix: str, numbers: Iterator[int]) -> None:
        self.trace, self.numbers, self.events = trace, numbers, list[Event]()
        self.left_out = ""
        self.pid = [next(numbers) for _ in range(trace.world_size)]
        for rank, pid in enumerate(self.pid):
            self.events += _describe_process(pid, f"{prefix}rank {rank}", pid)
        self._add_spans()
        self._add_messages()
        self._add_ends()
        self._add_counters(prefix)

    def _add_spans(self) -> None:
        spans = self.trace.spans[:100_000]
        self._leave_out(len(self.trace.spans) - len(spans), len(self.trace.spans), "spans")
        phases: dict[int, list[EventSlice]] = {}
        reductions: dict[int, list[EventSlice]] = {}
        for span in spans:
            kind = reductions if span.name == "reduce" else phases
            begin, args = _ns(span.begin), {"step": span.step}
            piece = EventSlice(span.name, span.name, begin, begin, _ns(span.end), "", args)
            kind.setdefault(span.rank, []).append(piece)
        self._add_tracks(phases, "phases", 0)
        self._add_tracks(reductions, "reduces", 100)

    def _add_messages(self) -> None:
        messages = self.trace.messages[:MOST_MESSAGES]
        self._leave_out(len(self.trace.messages) - len(messages), len(self.trace.messages), "messages")
        arrows = self._choose_arrows(messages)
        sends: dict[int, list[EventSlice]] = {}
        receives: dict[int, list[EventSlice]] = {}
        for number, message in enumerate(messages):
            args: Event = {"bytes": message.nbytes, "chunk": message.chunk, "chunks": message.count}
            args["into"] = message.into
            args |= {"step of the sender": message.step, "step of the receiver": message.dst_step}
            args |= {"channel": message.channel} if message.channel else {}
            args |= {"route": " > ".join(message.route)} if message.route else {}
            arrow = arrows.get(number, -1)
            begin, end = _ns(message.begin), _ns(message.end)
            receive = "reduce from" if message.reduces else "receive from"
            for slices, rank, peer, category, verb, posted in (
                (sends, message.src, message.dst, "send", "send to", message.src_posted),
                (receives, message.dst, message.src, "receive", receive, message.dst_posted),
            ):
                name, wait, since = f"{verb} rank {peer}", f"wait for rank {peer}", min(begin, _ns(posted))
                slices.setdefault(rank, []).append(EventSlice(name, category, since, begin, end, wait, args, arrow))
        self._add_tracks(sends, "sends", 200)
        self._add_tracks(receives, "receives", 300)

    def _choose_arrows(self, messages: Messages) -> dict[int, int]:
        """Return a dict from message index to arrow ID. If arrows must be omitted, the critical path comes first."""
        lasting = np.array([_ns(end) - _ns(begin) for begin, end in zip(messages.begin, messages.end, strict=True)])
        can = np.flatnonzero(lasting >= SHORTEST_ARROW).tolist()
        chosen = can
        if len(can) > MOST_ARROWS:
            path = {leg.number for leg in critical_path(self.trace) if leg.name == "message"}
            chosen = sorted(can, key=lambda number: number not in path)[:MOST_ARROWS]
        self._leave_out(len(messages) - len(chosen), len(messages), "arrows")
        return {number: next(self.numbers) for number in chosen}

    def _add_ends(self) -> None:
        end, stuck = _ns(self.trace.elapsed), dict[int, list[EventSlice]]()
        for wait in self.trace.unfinished:
            verb = f"{'send to' if wait.sends else 'receive from'} rank {wait.peer}"
            name = f"{verb}: {'stuck in flight' if wait.is_under_way else 'never matched'}"
            since = min(_ns(wait.since), end)
            args = {"step": wait.step, "chunk": wait.chunk, "chunks": wait.count, "channel": wait.channel}
            stuck.setdefault(wait.rank, []).append(EventSlice(name, "unfinished", since, since, end, "", args))
        self._add_tracks(stuck, "never ended", 400)
        failures = [(rank, time, "failed") for rank, time in self.trace.failed.items() if time <= self.trace.elapsed]
        if self.trace.failure is not None:
            why = self.trace.failure
            failures += [(rank, self.trace.elapsed, why.text) for rank in why.ranks]
        for rank, time, text in failures:
            event = {"ph": "i", "s": "p", "name": text, "cat": "failure", "pid": self.pid[rank], "ts": _ns(time) / 1000}
            self.events.append({**event, "tid": self.pid[rank]})

    def _add_tracks(self, slices: dict[int, list[EventSlice]], name: str, order: int) -> None:
        for rank, rank_slices in slices.items():
            track = assign_tracks([(piece.posted, piece.end) for piece in rank_slices])
            tids = [next(self.numbers) for _ in range(max(track) + 1)]
            for number, tid in enumerate(tids):
                label = f"{name} {number + 1}" if number else name
                self.events += _describe("thread", self.pid[rank], tid, label, order + number)
            for piece, number in zip(rank_slices, track, strict=True):
                self.events += _slice_events(piece, self.pid[rank], tids[number])

    def _add_counters(self, prefix: str) -> None:
        """Add counters of load over time for the links with the highest utilization."""
        if not self.trace.links or not len(self.trace.messages):
            return
        loads = link_loads(self.trace)
        used = np.flatnonzero((loads.use > 0) & np.isfinite(loads.capacity))
        chosen: Ints = used[np.argsort(-loads.use[used], kind="stable")][:COUNTERS]
        while len(chosen) and np.diff(loads.first)[chosen].sum() > 100_000:
            chosen = chosen[:-1]
        self._leave_out(len(used) - len(chosen), len(used), "links")
        pid = next(self.numbers)
        self.events += _describe_process(pid, f"{prefix}links", pid)
        for number in chosen.tolist():
            link, crossings = self.trace.links[number], slice(loads.first[number], loads.first[number + 1])
            by_time = dict(zip(map(_ns, loads.time[crossings].tolist()), loads.load[crossings].tolist(), strict=True))
            common = {"ph": "C", "name": f"{link.src} to {link.dst}", "pid": pid}
            self.events += [
                {**common, "ts": time / 1000, "args": {"Gbit/s": 8 * load / 1e9}} for time, load in by_time.items()
            ]

    def _leave_out(self, number: int, of: int, things: str) -> None:
        if number:
            self.left_out += f"  ·  without {number} of {of} {things}"


def assign_tracks(intervals: Iterable[tuple[int, int]]) -> list[int]:
    """Return a track number for each interval so that no two intervals on a track overlap.

    Intervals are assigned in order of their starts, each to the free track with the lowest number.

    >>> assign_tracks([(0, 10), (5, 8), (8, 12), (10, 11)])
    [0, 1, 1, 0]
    """
    numbered = sorted((begin, end, number) for number, (begin, end) in enumerate(intervals))
    tracks, busy, free = [0] * len(numbered), list[tuple[int, int]](), list[int]()
    for begin, end, number in numbered:
        while busy and busy[0][0] <= begin:
            heappush(free, heappop(busy)[1])
        tracks[number] = heappop(free) if free else len(busy)
        heappush(busy, (max(end, begin + 1), tracks[number]))
    return tracks


def _slice_events(piece: EventSlice, pid: int, tid: int) -> list[Event]:
    """Return the events for a slice, for the wait before it, and for the start or end of its arrow."""
    place = {"pid": pid, "tid": tid}
    event: Event = {"ph": "X", "name": piece.name, "cat": piece.category, "ts": piece.begin / 1000}
    events = [{**event, "dur": (piece.end - piece.begin) / 1000, **place, "args": piece.args}]
    if piece.posted < piece.begin:
        waited = (piece.begin - piece.posted) / 1000
        events.append({"ph": "X", "name": piece.wait, "cat": "wait", "ts": piece.posted / 1000, "dur": waited, **place})
    if piece.arrow >= 0:
        flow: Event = {"name": "message", "cat": "message", "id": piece.arrow, **place}
        leaves = {"ph": "s", "ts": piece.begin / 1000}
        comes = {"ph": "f", "bp": "e", "ts": (piece.end - 1) / 1000}
        events.append({**flow, **(leaves if piece.category == "send" else comes)})
    return events


def _describe_process(pid: int, name: str, order: int) -> list[Event]:
    return _describe("process", pid, pid, name, order)


def _describe(kind: str, pid: int, tid: int, name: str, order: int) -> list[Event]:
    """Return the metadata events for the name and position of a process or thread."""
    about = {"ph": "M", "pid": pid, "tid": tid}
    return [
        {**about, "name": f"{kind}_name", "args": {"name": name}},
        {**about, "name": f"{kind}_sort_index", "args": {"sort_index": order}},
    ]


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)
