"""The Trace of a run of the compiled engine, the same as the reference engine records."""

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
from simcomm.compiled.kernel.arrays import Floats
from simcomm.compiled.mean_division import division_seconds
from simcomm.compiled.planning.engine_input import EngineInput
from simcomm.compiled.timing import MessageTimes, Timing

StepSite = tuple[int, int, int]  # rank, channel, step
Indices = npt.NDArray[Any]


def make_trace(inputs: EngineInput, timing: Timing, facts: dict[str, float], *, record: bool = True) -> Trace:
    """Return the Trace of a timing; without ``record`` only of its times, and of what never ended.

    Messages are recorded where the timing has the times of each, and the schedule is written out.
    """
    cluster, title = inputs.cluster, inputs.schedule.algorithm.full_name
    nodes, hosts = list(cluster.graph), list(cluster.hosts)
    if timing.times is None or (not record and timing.elapsed < inf):
        only = Trace(title, "predicted", cluster.world_size, timing.elapsed, nodes=nodes, hosts=hosts, facts=facts)
        return replace(only, engine="compiled", method=timing.method)
    messages = sorted(trace_messages(inputs, timing), key=lambda m: (m.begin, m.src)) if record else []
    computes = inputs.transport.gamma > 0
    spans = [*trace_reductions(inputs, timing), *_trace_mean_division(inputs, timing)] if computes else []
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
        trace_links(inputs, [timing]) if record else [], nodes, hosts, facts, "compiled", timing.method,
        failed={rank: fails_at(rank) for rank in sorted(timing.failed, key=lambda rank: (fails_at(rank), rank))},
        unfinished=trace_unfinished(inputs, timing),
    )  # fmt: skip


def trace_messages(inputs: EngineInput, timing: Timing) -> Iterator[Message]:
    """Yield the messages that arrived, in the order in which they did."""
    router, hosts, times, posted = inputs.cluster.router(), inputs.cluster.hosts, timing.times, timing.posted
    assert times is not None, "the timing has no times of single messages"
    assert posted is not None, "the timing has no times of single messages"
    columns: list[Indices] = [*times, times.begin - posted.src, times.begin - posted.dst]
    order = np.argsort(times.end, kind="stable")
    order = order[np.isfinite(times.end[order])]
    rows: Iterator[tuple[Any, ...]] = zip(*(column[order].tolist() for column in columns), strict=True)
    for src, dst, channel, step, chunk, nbytes, begin, end, *waited in rows:
        route = router.route(hosts[src], hosts[dst])
        yield Message(src, dst, step, chunk, int(nbytes), begin, end, route, channel, *waited)


def trace_unfinished(inputs: EngineInput, timing: Timing) -> list[Unfinished]:
    """Return the halves that were posted, of messages that never arrived; in order of time."""
    times, posted = timing.times, timing.posted
    assert times is not None, "the timing has no times of single messages"
    assert posted is not None, "the timing has no times of single messages"
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
    """Return the send and the receive of each message sent, as indices into the schedule's table."""
    columns, sends = inputs.schedule.table().columns, inputs.schedule_plan.sends
    assert sends is not None, "only a schedule written out has a table: use with_table"
    return sends, columns.match[sends]


def trace_reductions(inputs: EngineInput, timing: Timing) -> Iterator[Span]:
    """Yield each reduction and copy of each rank: a step's come after all its messages, received ones first."""
    assert timing.times is not None, "the timing has no times of single messages"
    columns, n, itemsize = inputs.schedule.table().columns, inputs.request.elements, inputs.request.itemsize
    arrived, now = _last_arrivals(inputs, timing.times), dict[tuple[int, int], float]()
    order = np.lexsort((columns.kind >= Kind.COPY, columns.step, columns.channel, columns.rank))
    slower = _operation_slowdowns(inputs)[order].tolist()
    said = (column[order].tolist() for column in (*columns[:4], columns.into, columns.count))
    for site, operations in groupby(zip(*said, slower, strict=True), key=itemgetter(0, 1, 2)):
        rank, channel, step = site
        starts = 0.0 if inputs.starts is None else float(inputs.starts[rank])
        begin = max(now.get((rank, channel), starts), arrived.get(site, 0.0))
        fails_at = inputs.trouble.fails_at(rank)
        for _, _, _, kind, into, count, factor in operations:
            seconds = inputs.transport.gamma * extent(into, count, n, inputs.schedule.chunks) * itemsize * factor
            if kind > Kind.RECV and seconds > 0 and begin < fails_at:
                yield Span(rank, "reduce", step, begin, begin + seconds)
                begin += seconds
        now[rank, channel] = begin if begin < fails_at else inf


def _operation_slowdowns(inputs: EngineInput) -> Floats:
    """Return how many times as long each operation of the table computes."""
    columns, trouble = inputs.schedule.table().columns, inputs.trouble
    return trouble.slowdown(inputs.index, columns.rank, columns.channel, columns.step)


def _last_arrivals(inputs: EngineInput, times: MessageTimes) -> dict[StepSite, float]:
    """Return when the last message of each step ended; infinite where one never did."""
    columns = inputs.schedule.table().columns
    latest: dict[StepSite, float] = {}
    for ends in _halves(inputs):
        sites = zip(*(column[ends].tolist() for column in columns[:3]), strict=True)
        for site, end in zip(sites, np.nan_to_num(times.end, nan=inf).tolist(), strict=True):
            latest[site] = max(latest.get(site, 0.0), end)
    return latest


def _trace_mean_division(inputs: EngineInput, timing: Timing) -> Iterator[Span]:
    """Yield the mean's division at the end of each rank that holds a result; ``timing`` includes it."""
    if inputs.request.op != "mean":
        return
    last = inputs.schedule.steps
    for rank, (end, busy) in enumerate(zip(timing.finished.tolist(), division_seconds(inputs).tolist(), strict=True)):
        if busy > 0 and end < inf:
            yield Span(rank, "reduce", last, end - busy, end)


def trace_links(inputs: EngineInput, timings: Iterable[Timing]) -> list[TracedLink]:
    """Return every link with the bytes of the messages that began in any of these runs and crossed it."""
    graph, hosts, router = inputs.cluster.graph, inputs.cluster.hosts, inputs.cluster.router()
    carried = dict.fromkeys(graph.edges, 0.0)
    for times in (timing.times for timing in timings):
        assert times is not None, "the timing has no times of single messages"
        begun = np.isfinite(times.begin)
        said = (column[begun].tolist() for column in (times.src, times.dst, times.nbytes))
        for src, dst, nbytes in zip(*said, strict=True):
            for edge in pairwise(router.route(hosts[src], hosts[dst])):
                carried[edge] += nbytes
    return [
        TracedLink(a, b, data["bandwidth"], data["latency"], carried[a, b]) for a, b, data in graph.edges(data=True)
    ]
