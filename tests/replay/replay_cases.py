"""Random recordings, and the reference engine as the oracle of their replay."""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import simpy
from hypothesis import strategies as st

from collectives import find_algorithm
from collectives.call import reduced_slice
from collectives.catalogue import library
from collectives.errors import InputError, Undefined
from collectives.step import Kind, Operation, on_group
from replay.recording import CallKind, Did, RecordedCall, Recording
from replay.recording_builder import RecordedCollective, RecordingBuilder
from replay.simulation.carriers import DEFAULTS
from simcomm.cluster.calibrated import resolve_transport
from simcomm.cluster.cluster import Cluster
from simcomm.model.faults import DIVISION, NO_FAULTS, PROGRAM, Faults
from simcomm.reference.engine import Buffer, Location, Simulation
from simcomm.schedules import verified_schedule

Process = Iterator[Any]
SECONDS = (0.0, 0.0, 0.0, 1e-5, 2e-5, 3.7e-4)
SIZES = (1, 7, 400, 25_000)


class Live:
    """Runs a recording in the reference engine. ``finished`` is the end time of each stream."""

    def __init__(
        self, recording: Recording, cluster: Cluster, algorithms: dict[str, str], faults: Faults = NO_FAULTS
    ) -> None:
        self.recording, self.algorithms = recording, DEFAULTS | algorithms
        self.simulation = Simulation(*resolve_transport(cluster), faults)
        self.env = self.simulation.env
        self.done = [self.env.event() for _ in recording.calls]
        self.calls = list(recording.calls)
        self.signals: defaultdict[int, simpy.Event] = defaultdict(self.env.event)
        self.finished = [np.inf] * len(recording.streams)
        self.before: dict[tuple[int, int], list[simpy.Event]] = {}  # of a rank and line: what the next call waits for
        self.batch: dict[tuple[int, int], tuple[int, list[simpy.Event]]] = {}
        self.simulation.run(map(self._stream, range(len(recording.streams))))

    def _stream(self, stream: int) -> Process:
        rank, entries = self.recording.streams[stream].rank, self.recording.entries
        positions = np.flatnonzero(entries.stream == stream).tolist()
        for place, at in enumerate(positions):
            entry = entries[at]
            yield from self._compute(stream, rank, place, entry.seconds)
            yield from self.simulation._stop_if_failed(rank)
            if entry.did == Did.POST:
                self._post(entry.number, at)
            elif entry.did == Did.WAIT:
                yield self.done[entry.number]
            elif entry.did == Did.SIGNAL:
                self.signals[entry.number].succeed()
            elif entry.did == Did.AWAIT:
                yield self.signals[entry.number]
        yield from self.simulation._stop_if_failed(rank)
        yield from self._compute(stream, rank, len(positions), self.recording.streams[stream].tail)
        self.finished[stream] = float(self.env.now)

    def _compute(self, stream: int, rank: int, place: int, seconds: float) -> Process:
        yield from self.simulation.compute("compute", Location(stream, rank, PROGRAM, place), seconds)

    def _post(self, number: int, entry: int) -> None:
        """Start a call after the previous call of its line. Messages posted together begin together."""
        call = self.calls[number]
        where, first = (call.rank, call.line), []
        if call.line:
            last, batch = self.batch.get(where, (-2, []))
            together = last == entry - 1 and self.recording.entries.seconds[entry] == 0
            if call.kind == CallKind.COLLECTIVE or not together:
                self.before[where], batch = batch, []
            first = list(self.before.get(where, ()))
            batch.append(self.done[number])
            self.batch[where] = (-2 if call.kind == CallKind.COLLECTIVE else entry), batch
        self.env.process(self._call(call, number, first))

    def _call(self, call: RecordedCall, number: int, first: list[simpy.Event]) -> Process:
        yield self.env.all_of(first)
        if call.kind == CallKind.COLLECTIVE:
            yield from self._collective(call)
        else:
            kind = Kind.SEND if call.kind == CallKind.SEND else Kind.RECV
            half = self.simulation.post(
                Location(call.key, call.rank, 0, 0), Operation(kind, call.peer, 0, 1, 0), call.nbytes
            )
            yield half.done
        self.done[number].succeed()

    def _collective(self, call: RecordedCall) -> Process:
        verb, ranks = self.recording.verbs[call.verb], self.recording.groups[call.group].ranks
        algorithm = find_algorithm(self.algorithms[verb], verb)
        schedule = verified_schedule(algorithm, len(ranks), call.root)
        me, op = ranks.index(call.rank), self.recording.ops[call.op]
        programs = [on_group(iter(program), ranks) for program in schedule.programs[me]]
        buffer = Buffer(algorithm, len(ranks), call.elements, call.itemsize, None)
        yield from self.simulation.collective(call.rank, programs, buffer, op, call.key)
        if op == "mean":
            reduced = reduced_slice(algorithm.spec, me, len(ranks), call.root, call.elements)
            seconds = self.simulation.transport.gamma * (reduced.stop - reduced.start) * call.itemsize
            location = Location(call.key, call.rank, DIVISION, schedule.steps)
            yield from self.simulation.compute("reduce", location, seconds)


def algorithms_for(verb: str, sizes: tuple[int, ...]) -> list[str]:
    """Return the library's algorithms of a collective that support all these numbers of ranks."""
    labels = []
    for algorithm in library().values():
        if algorithm.spec.name == verb:
            with suppress(InputError, Undefined):
                for size in sizes:
                    verified_schedule(algorithm, size)
                labels.append(algorithm.label)
    return labels


@st.composite
def recordings(draw: st.DrawFn) -> tuple[Recording, dict[str, str]]:
    """Draw a program without deadlocks, whose ranks post calls in one global order, and its algorithms."""
    ranks = draw(st.integers(2, 4))
    builder = RecordingBuilder("drawn.py", ranks)
    waiting: list[list[int]] = [[] for _ in range(ranks)]  # calls that a rank has yet to wait for
    chosen: dict[str, str] = {}
    pause = partial(draw, st.sampled_from(SECONDS))
    for number in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from(["collective", "collective", "message", "exchange", "device"]))
        line = draw(st.sampled_from(["", "", "line"]))
        posted: list[tuple[int, int]] = []
        if kind == "collective":
            posted = _collective(draw, builder, ranks, number, line, chosen)
        elif kind == "device":
            rank = draw(st.integers(0, ranks - 1))
            device = builder.stream(rank, f"device {number}")
            builder.signal(rank, ("to", number), seconds=pause())
            builder.await_signal(device, ("to", number), seconds=pause())
            builder.signal(device, ("from", number), seconds=pause())
            builder.await_signal(rank, ("from", number), seconds=pause())
            builder.compute(device, pause())
        else:
            src, dst = draw(st.permutations(range(ranks)))[:2]
            ends = [(src, dst), (dst, src)] if kind == "exchange" else [(src, dst)]
            for a, b in ends:
                nbytes = 8 * draw(st.sampled_from(SIZES))
                posted += [(a, builder.send(a, b, nbytes, key=(number, a), line=line))]
                posted += [(b, builder.recv(b, a, nbytes, key=(number, a), line=line))]
        first = {rank for rank, _ in posted}
        for rank, call in posted:
            builder.post(rank, call, seconds=pause() if rank in first else 0.0)
            first.discard(rank)
            waiting[rank].append(call)
        for rank in {rank for rank, _ in posted}:
            if draw(st.booleans()):
                _wait(builder, rank, waiting, pause())
    for rank in range(ranks):
        _wait(builder, rank, waiting, pause())
        builder.compute(rank, pause())
    return builder.recording(), chosen


def _collective(
    draw: st.DrawFn, builder: RecordingBuilder, ranks: int, number: int, line: str, chosen: dict[str, str]
) -> list[tuple[int, int]]:
    group = tuple(draw(st.permutations(range(ranks)))[: draw(st.integers(2, ranks))])
    verb = draw(st.sampled_from(sorted(DEFAULTS)))
    if verb not in chosen:
        chosen[verb] = draw(st.sampled_from(algorithms_for(verb, (2, 3, 4))))
    spec = find_algorithm(chosen[verb], verb).spec
    elements = draw(st.sampled_from(SIZES)) * len(group)
    op = draw(st.sampled_from(["sum", "mean"])) if spec.reduces else "sum"
    root = draw(st.integers(0, len(group) - 1)) if spec.rooted else 0
    collective = RecordedCollective(verb, group, elements, op=op, root=root, group=f"group of {group}")
    return [(rank, builder.collective(rank, number, collective, line=line)) for rank in group]


def _wait(builder: RecordingBuilder, rank: int, waiting: list[list[int]], seconds: float) -> None:
    for call in waiting[rank]:
        builder.wait(rank, call, seconds=seconds)
        seconds = 0.0
    waiting[rank].clear()
