"""What the compiled engine found, as the record that everything else reads; for cases small enough to look at."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby, pairwise
from math import inf
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from collectives.records.trace import Message, Span, Trace, TracedLink, Unfinished
from collectives.step import Kind, extent
from simcomm.compiled.engine_input import EngineInput
from simcomm.compiled.mean_division import scaling_seconds, steps_of
from simcomm.compiled.routes import Floats
from simcomm.compiled.timing import MessageTimes, Timing

Stage = tuple[int, int, int]  # rank, channel, step
Indices = npt.NDArray[Any]


def recorded(inputs: EngineInput, timing: Timing, op: str, facts: dict[str, float], record: bool = True) -> Trace:
    """The same record that the simpy engine makes; without ``record`` only of times, and of what never ended."""
    cluster, title = inputs.cluster, inputs.schedule.algorithm.full_name
    nodes, hosts = list(cluster.graph), list(cluster.hosts)
    if timing.times is None or (not record and timing.elapsed < inf):
        only = Trace(title, "predicted", cluster.world_size, timing.elapsed, nodes=nodes, hosts=hosts, facts=facts)
        return replace(only, engine="compiled", method=timing.method)
    messages = sorted(recorded_messages(inputs, timing), key=lambda m: (m.begin, m.src)) if record else []
    computes = inputs.transport.gamma > 0
    spans = [*reductions_of(inputs, timing), *_scaling(inputs, timing, op)] if computes else []
    spans.sort(key=lambda span: (span.begin, span.rank))
    elapsed = timing.elapsed
    if elapsed == inf:
        ends = timing.times.end[np.isfinite(timing.times.end)]
        elapsed = max([span.end for span in spans], default=0.0)
        elapsed = max(elapsed, float(ends.max(initial=0.0)))
        facts = facts | {"time_min_s": elapsed, "time_max_s": elapsed}
    fails_at = inputs.trouble.fails_at
    return Trace(
        title, "predicted", cluster.world_size, elapsed, messages, spans if record else [],
        links_of(inputs, [timing]) if record else [], nodes, hosts, facts, "compiled", timing.method,
        failed={rank: fails_at(rank) for rank in sorted(timing.failed, key=lambda rank: (fails_at(rank), rank))},
        unfinished=unfinished(inputs, timing),
    )  # fmt: skip


def recorded_messages(inputs: EngineInput, timing: Timing) -> Iterator[Message]:
    """Those that arrived, in the order in which they did."""
    router, hosts, times, posted = inputs.cluster.router(), inputs.cluster.hosts, timing.times, timing.posted
    assert times is not None
    assert posted is not None
    columns: list[Indices] = [*times, times.begin - posted.src, times.begin - posted.dst]
    order = np.argsort(times.end, kind="stable")
    order = order[np.isfinite(times.end[order])]
    rows: Iterator[tuple[Any, ...]] = zip(*(column[order].tolist() for column in columns), strict=True)
    for src, dst, channel, step, chunk, nbytes, begin, end, *late in rows:
        yield Message(
            src, dst, step, chunk, int(nbytes), begin, end, router.route(hosts[src], hosts[dst]), channel, *late
        )


def unfinished(inputs: EngineInput, timing: Timing) -> list[Unfinished]:
    """Halves that were posted, of messages that never arrived."""
    times, posted = timing.times, timing.posted
    assert times is not None
    assert posted is not None
    columns, found = inputs.schedule.table().columns, list[Unfinished]()
    stuck = np.flatnonzero(np.isnan(times.end))
    for sends, since, ends in zip((True, False), posted, _halves(inputs), strict=True):
        there = stuck[np.isfinite(since[stuck])]
        said = [column[ends[there]].tolist() for column in (columns.rank, columns.peer, columns.step, columns.channel)]
        under_way = np.isfinite(times.begin[there]).tolist()
        for rank, peer, step, channel, at, flies in zip(*said, since[there].tolist(), under_way, strict=True):
            found.append(Unfinished(rank, peer, sends, step, channel, at, flies))
    return sorted(found, key=lambda one: (one.since, one))


def _halves(inputs: EngineInput) -> tuple[Indices, Indices]:
    """Of each message the send and the receive in the table of operations."""
    columns, sends = inputs.schedule.table().columns, inputs.demand.sends
    assert sends is not None
    return sends, columns.match[sends]


def reductions_of(inputs: EngineInput, timing: Timing) -> Iterator[Span]:
    """Each reduction and copy of each rank: a step's come after all its messages, received ones first."""
    assert timing.times is not None
    columns, n, itemsize = inputs.schedule.table().columns, inputs.n, inputs.itemsize
    through, now = _through(inputs, timing.times), dict[tuple[int, int], float]()
    order = np.lexsort((columns.kind >= Kind.COPY, columns.step, columns.channel, columns.rank))
    slower = _slowdowns(inputs)[order].tolist()
    said = (column[order].tolist() for column in (*columns[:4], columns.into, columns.count))
    for stage, operations in groupby(zip(*said, slower, strict=True), key=itemgetter(0, 1, 2)):
        rank, channel, step = stage
        starts = 0.0 if inputs.starts is None else float(inputs.starts[rank])
        begin = max(now.get((rank, channel), starts), through.get(stage, 0.0))
        fails_at = inputs.trouble.fails_at(rank)
        for _, _, _, kind, into, count, factor in operations:
            seconds = inputs.transport.gamma * extent(into, count, n, inputs.schedule.chunks) * itemsize * factor
            if kind > Kind.RECV and seconds > 0 and begin < fails_at:
                yield Span(rank, "reduce", step, begin, begin + seconds)
                begin += seconds
        now[rank, channel] = begin if begin < fails_at else inf


def _slowdowns(inputs: EngineInput) -> Floats:
    """How many times as long each operation computes."""
    columns, trouble = inputs.schedule.table().columns, inputs.trouble
    return trouble.slowdown(inputs.turn, columns.rank, columns.channel, columns.step)


def _through(inputs: EngineInput, times: MessageTimes) -> dict[Stage, float]:
    """When the last message of each (rank, channel, step) was through."""
    columns = inputs.schedule.table().columns
    latest: dict[Stage, float] = {}
    for ends in _halves(inputs):
        stages = zip(*(column[ends].tolist() for column in columns[:3]), strict=True)
        for stage, end in zip(stages, np.nan_to_num(times.end, nan=inf).tolist(), strict=True):
            latest[stage] = max(latest.get(stage, 0.0), end)
    return latest


def _scaling(inputs: EngineInput, timing: Timing, op: str) -> Iterator[Span]:
    """The mean's division at the end of each rank that holds a result; ``timing`` includes it."""
    if op != "mean":
        return
    last = steps_of(inputs.schedule)
    for rank, (end, busy) in enumerate(zip(timing.finished.tolist(), scaling_seconds(inputs).tolist(), strict=True)):
        if busy > 0 and end < inf:
            yield Span(rank, "reduce", last, end - busy, end)


def links_of(inputs: EngineInput, timings: Iterable[Timing]) -> list[TracedLink]:
    """With the bytes of messages that came on their way in any of these runs."""
    graph, hosts, router = inputs.cluster.graph, inputs.cluster.hosts, inputs.cluster.router()
    carried = dict.fromkeys(graph.edges, 0.0)
    for times in (timing.times for timing in timings):
        assert times is not None
        begun = np.isfinite(times.begin)
        said = (column[begun].tolist() for column in (times.src, times.dst, times.nbytes))
        for src, dst, nbytes in zip(*said, strict=True):
            for edge in pairwise(router.route(hosts[src], hosts[dst])):
                carried[edge] += nbytes
    return [
        TracedLink(a, b, data["bandwidth"], data["latency"], carried[a, b]) for a, b, data in graph.edges(data=True)
    ]
