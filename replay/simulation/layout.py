"""Lay out a replay as stages of the kernel's agents: first the streams, then the calls that run in parallel.

An agent runs its stages one after the other. Each stream is an agent. Each of its segments has a stage that computes.
It is followed by a stage that posts and awaits messages, or by several stages that run the steps of a collective. A
call that runs in parallel with its stream has an agent for each channel, which begins the call, runs its steps and ends
it. A *signal* is a message that takes no time. It begins or ends a call, or synchronizes streams.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from collectives.records.columns import Bools, Floats, Ints
from replay.recording import Did, Recording
from replay.simulation.calls import NEVER, ReplayedCalls, Segments
from replay.simulation.carriers import CallClass
from replay.simulation.templates import Template
from simcomm.model.faults import DIVISION, PROGRAM

NO_RANK = -1  # the rank of an agent without a rank


class Tasks(NamedTuple):
    """Compute tasks as arrays, one entry per stage that computes."""

    stage: Ints
    seconds: Floats
    rank: Ints
    number: Ints  # the collective's key, or the stream of a program's computing
    channel: Ints  # channel of a reduction, or DIVISION or PROGRAM
    step: Ints  # for a program's computing: index of the next entry in the stream's log
    entry: Ints  # that entry's number in the recording, after the last for a tail; else NO_RANK


class Stages:
    """Collects the stages of all agents, numbered consecutively, with the signals and compute tasks of these stages."""

    def __init__(self) -> None:
        self.number = 0
        self._ranks: list[Ints] = []
        self._lengths: list[Ints] = []
        self._signals: list[tuple[Ints, Ints]] = []
        self._work: list[Tasks] = []

    def add(self, ranks: Ints, lengths: Ints | int) -> Ints:
        """Add an agent for each rank in ``ranks``, with ``lengths`` stages. Return each agent's first stage."""
        each = np.broadcast_to(np.asarray(lengths, np.int64), (len(ranks),))
        first: Ints = self.number + np.cumsum(each) - each
        self._ranks.append(ranks)
        self._lengths.append(each)
        self.number += int(each.sum())
        return first

    def signal(self, source: Ints, sink: Ints) -> None:
        """Add a signal from each source stage to a sink stage. Neither stage continues before the other has begun."""
        self._signals.append((source, sink))

    def compute(self, work: Tasks) -> None:
        """Add compute tasks, which start when the messages of their stages have arrived. Empty tasks are omitted."""
        takes = work.seconds > 0
        self._work.append(Tasks._make(np.broadcast_to(column, takes.shape)[takes] for column in work))

    def agent(self) -> Ints:
        lengths = np.concatenate([*self._lengths, np.zeros(0, np.int64)])
        return np.repeat(np.arange(len(lengths)), lengths)

    def ranks(self) -> Ints:
        return np.concatenate([*self._ranks, np.zeros(0, np.int64)])

    def signals(self) -> tuple[Ints, Ints]:
        pairs = [np.stack(np.broadcast_arrays(*pair)) for pair in self._signals]
        sources, sinks = np.concatenate([*pairs, np.zeros((2, 0), np.int64)], axis=1)
        return sources, sinks

    def work(self) -> Tasks:
        empty = Tasks._make(np.zeros(0, np.float64 if name == "seconds" else np.int64) for name in Tasks._fields)
        return Tasks._make(map(np.concatenate, zip(empty, *self._work, strict=True)))


Pairs = list[tuple[Ints, Ints]]


@dataclass(frozen=True)
class ReplayLayout:
    """The stages of a replay, with the stage numbers of each segment, stream and call."""

    stages: Stages
    segment_stage: Ints  # [segments]: the action, the first step of a collective, or the stage after a mark
    last_stage: Ints  # [streams]: computing at the end
    half: Ints  # [calls]: the stage that posts a send or receive
    bases: list[Ints]  # per call class, [collectives * ranks, channels]: the first step of each part's channels
    never: int  # a stage that never begins


def lay_out(
    recording: Recording, segments: Segments, calls: ReplayedCalls, classes: list[CallClass], line: Ints
) -> ReplayLayout:
    """Return the layout of a recording. ``line`` has the communicator of each call, or 0 if it may overlap others."""
    making = _Making(recording, segments, calls, line)
    making.choose_inline(classes)
    making.lay_streams()
    making.lay_halves()
    bases = [making.lay_class(call_class) for call_class in classes]
    making.join_calls()
    making.join_lines()
    making.join_signals()
    stages = making.stages
    return ReplayLayout(stages, making.segment_stage, making.last_stage, making.half, bases, making.never)


class _Making:
    def __init__(self, recording: Recording, segments: Segments, calls: ReplayedCalls, line: Ints) -> None:
        self.recording, self.segments, self.calls, self.line = recording, segments, calls, line
        self.stages = Stages()
        self.rank_of_stream: Ints = np.array([stream.rank for stream in recording.streams], np.int64)
        more = np.zeros(len(calls.rank) - len(segments.blocking), np.bool_)
        unordered = line == 0
        self.merged: Bools = np.append(segments.blocking, more) & ~calls.is_collective & unordered
        self.inline: Bools = np.append(segments.alone, more) & calls.is_collective & unordered
        self.length: Ints = np.ones(len(calls.rank), np.int64)  # stages of inline calls
        self.half: Ints = np.full(len(calls.rank), NEVER)
        self.begins: Pairs = []  # stages that begin separate calls, and the calls
        self.ends: Pairs = []

    def choose_inline(self, classes: list[CallClass]) -> None:
        """Run collectives with one channel as stages of their streams, and store the number of stages of each."""
        for call_class in classes:
            calls = call_class.parts.reshape(-1)
            if call_class.template is None or call_class.template.channels > 1:
                self.inline[calls] = False
                continue
            lengths = call_class.template.lengths + (call_class.template.division > 0)
            self.length[calls] = np.tile(lengths, len(call_class.collectives))

    def lay_streams(self) -> None:
        """Add the stages of all streams. The last stage of a stream is its computing after the last log entry."""
        segments, entries = self.segments, self.recording.entries
        seconds, streams = entries.seconds[segments.first], len(self.recording.streams)
        body = (~np.isin(segments.did, (Did.BEGIN, Did.END))).astype(np.int64)
        inline = np.flatnonzero(self.inline)
        body[self.calls.posted[inline]] = self.length[inline]
        number = body + (seconds > 0)
        lengths = np.bincount(segments.stream, number, streams).astype(np.int64) + 1
        first = self.stages.add(self.rank_of_stream, lengths)
        before = np.cumsum(number) - number
        of_stream = np.append(0, np.cumsum(np.bincount(segments.stream, number, streams)).astype(np.int64))
        begin = first[segments.stream] + before - of_stream[segments.stream]
        self.segment_stage: Ints = begin + (seconds > 0)
        self.last_stage: Ints = first + lengths - 1
        never = self.stages.add(np.array([NO_RANK]), 2)
        self.never = int(never[0]) + 1
        self.stages.signal(never + 1, never)
        first_entry = np.searchsorted(entries.stream, np.arange(streams + 1))
        place = segments.first - first_entry[segments.stream], segments.first
        self._compute(begin, seconds, segments.stream, place)
        tails = np.array([stream.tail for stream in self.recording.streams])
        ends = np.diff(first_entry), first_entry[1:]
        self._compute(self.last_stage, tails, np.arange(streams), ends)

    def _compute(self, stage: Ints, seconds: Floats, stream: Ints, place: tuple[Ints, Ints]) -> None:
        self.stages.compute(Tasks(stage, seconds, self.rank_of_stream[stream], stream, np.array(PROGRAM), *place))

    def lay_halves(self) -> None:
        """Add sends and receives. A call in ``merged`` is a stage of its stream; every other call has its own agent."""
        merged = np.flatnonzero(self.merged)
        self.half[merged] = self.segment_stage[self.calls.posted[merged]]
        beside = np.flatnonzero(~self.merged & ~self.calls.is_collective)
        first = self.stages.add(self.calls.rank[beside], 3)
        self.half[beside] = first + 1
        self.begins.append((first, beside))
        self.ends.append((first + 2, beside))

    def lay_class(self, call_class: CallClass) -> Ints:
        """Add the collectives of a call class. Return the first step of each call and channel."""
        calls = call_class.parts.reshape(-1)
        if call_class.template is None:
            return self._lay_inside(call_class, calls)
        template, inline = call_class.template, self.inline[calls]
        bases = np.empty((len(calls), template.channels), np.int64)
        bases[inline] = self.segment_stage[self.calls.posted[calls[inline]]][:, None]
        rows = np.flatnonzero(~inline)
        beside, member = calls[rows], self.calls.member[calls[rows]]
        lengths = template.lengths.reshape(template.ranks, -1)
        joined = template.division.any() and template.channels > 1
        divided = (template.division > 0) & (template.channels == 1)
        each = lengths[member] + 2 + divided[member][:, None]
        first = self.stages.add(np.repeat(self.calls.rank[beside], template.channels), each.reshape(-1))
        bases[rows] = first.reshape(each.shape) + 1
        of_agent, last = np.repeat(beside, template.channels), first + each.reshape(-1) - 1
        self.begins.append((first, of_agent))
        if joined:
            join = self.stages.add(self.calls.rank[beside], 2)
            self.stages.signal(last, np.repeat(join, template.channels))
            self.ends.append((join + 1, beside))
            self._divide(template, beside, join)
        else:
            self.ends.append((last, of_agent))
        if divided.any():
            at = bases[:, 0] + np.tile(lengths[:, 0], len(call_class.collectives))
            self._divide(template, calls, at)
        self._reduce(call_class, bases)
        return bases

    def _divide(self, template: Template, calls: Ints, stage: Ints) -> None:
        """Add compute tasks that divide the sum on each rank if the operator is a mean."""
        seconds = template.division[self.calls.member[calls]]
        step = np.full(len(calls), template.step.max(initial=-1) + 1)
        number = self.calls.key[self.calls.collective[calls]]
        entry = np.array(NO_RANK)
        self.stages.compute(Tasks(stage, seconds, self.calls.rank[calls], number, np.array(DIVISION), step, entry))

    def _reduce(self, call_class: CallClass, bases: Ints) -> None:
        template = call_class.template
        assert template is not None
        busy = np.flatnonzero(template.cost > 0)
        member, channel = np.divmod(template.agent[busy], template.channels)
        table = bases.reshape(len(call_class.collectives), template.ranks, template.channels)
        stage = table[:, member, channel] + template.place[busy]
        rank = self.calls.rank[call_class.parts[:, member]]
        number = np.broadcast_to(self.calls.key[call_class.collectives][:, None], stage.shape)
        columns = [template.cost[busy], rank, number, channel, template.step[busy], np.array(NO_RANK)]
        flat = [np.broadcast_to(column, stage.shape).reshape(-1) for column in columns]
        self.stages.compute(Tasks(stage.reshape(-1), *flat))

    def _lay_inside(self, call_class: CallClass, calls: Ints) -> Ints:
        """Add collectives without simulated messages: all ranks leave ``seconds`` after the last rank has entered."""
        first = self.stages.add(self.calls.rank[calls], 3)
        hub = self.stages.add(np.full(len(call_class.collectives), NO_RANK), 2)
        meet, ranks = first + 1, call_class.parts.shape[1]
        self.stages.signal(meet, np.repeat(hub, ranks))
        self.stages.signal(np.repeat(hub + 1, ranks), meet)
        seconds, none = np.full(len(hub), call_class.seconds), np.array(NO_RANK)
        self.stages.compute(Tasks(hub, seconds, none, self.calls.key[call_class.collectives], none, np.array(0), none))
        self.begins.append((first, calls))
        self.ends.append((first + 2, calls))
        return meet[:, None]

    def join_calls(self) -> None:
        """Add the signals that begin calls when a stream posts them, and that end the waits of streams."""
        begin, call = _joined(self.begins)
        posted = self.calls.posted[call]
        source = np.full(len(call), self.never)
        source[posted >= 0] = self.segment_stage[posted[posted >= 0]]
        self.stages.signal(source, begin)
        waits = self.segments.wait_call, self.segments.wait_segment
        beside = ~(self.merged | self.inline)[waits[0]]
        call, segment = (column[beside] for column in waits)
        end, ended = _joined(self.ends)
        order = np.argsort(ended, kind="stable")
        at, which = _all_pairs(call, ended[order])
        self.stages.signal(end[order][which], self.segment_stage[segment[at]])

    def join_lines(self) -> None:
        """Make the calls of a communicator run in order. Messages that are posted together begin together."""
        lined = np.flatnonzero((self.line > 0) & (self.calls.posted >= 0))
        if not len(lined):
            return
        entry, rank, line = self.segments.post_entry[lined], self.calls.rank[lined], self.line[lined]
        order = np.lexsort((entry, line, rank))
        lined, entry, rank, line = (column[order] for column in (lined, entry, rank, line))
        same = (rank[1:] == rank[:-1]) & (line[1:] == line[:-1])
        message = ~self.calls.is_collective[lined]
        posted = self.calls.posted[lined]
        together = same & message[1:] & message[:-1] & (posted[1:] == posted[:-1]) & (entry[1:] == entry[:-1] + 1)
        batch = np.append(0, np.cumsum(~together))
        follows = np.zeros(int(batch[-1]) + 1, np.bool_)  # [batches]: whether another batch of the line precedes it
        follows[batch[1:][~together]] = same[~together]
        batch_of_call = np.full(len(self.calls.rank), NEVER)
        batch_of_call[lined] = batch
        begin, begun = _joined(self.begins)
        end, ended = _joined(self.ends)
        of_begin, of_end = batch_of_call[begun], batch_of_call[ended]
        later = np.flatnonzero((of_begin >= 0) & follows[of_begin])
        order = np.argsort(of_end, kind="stable")
        at, which = _all_pairs(of_begin[later] - 1, of_end[order])
        self.stages.signal(end[order][which], begin[later][at])

    def join_signals(self) -> None:
        """Connect the streams that await a signal to the stream that sends it. The sender does not block."""
        entries = self.recording.entries
        did, number = entries.did[self.segments.first], entries.number[self.segments.first]
        signals, awaited = np.flatnonzero(did == Did.SIGNAL), np.flatnonzero(did == Did.AWAIT)
        signals = signals[np.argsort(number[signals], kind="stable")]
        relay = self.stages.add(self.rank_of_stream[self.segments.stream[signals]], 2)
        self.stages.signal(self.segment_stage[signals], relay)
        at, which = _all_pairs(number[awaited], number[signals])
        self.stages.signal(relay[which] + 1, self.segment_stage[awaited[at]])
        missing = awaited[~np.isin(number[awaited], number[signals])]
        self.stages.signal(np.full(len(missing), self.never), self.segment_stage[missing])


def _joined(pairs: Pairs) -> tuple[Ints, Ints]:
    none = np.zeros(0, np.int64)
    return np.concatenate([none, *(stage for stage, _ in pairs)]), np.concatenate([none, *(call for _, call in pairs)])


def _all_pairs(wanted: Ints, ascending: Ints) -> tuple[Ints, Ints]:
    """Return the indices of all pairs of equal values in ``wanted`` and ``ascending``."""
    low, high = ascending.searchsorted(wanted), ascending.searchsorted(wanted, side="right")
    counts = high - low
    at = np.repeat(np.arange(len(wanted)), counts)
    within = np.arange(len(at)) - np.repeat(np.cumsum(counts) - counts, counts)
    return at, low[at] + within
