"""The Trace of a run of the compiled engine, the same as the reference engine records."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from math import inf
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from collectives.records.columnar import shrink
from collectives.records.messages import Messages, Routes
from collectives.records.spans import Span, Spans
from collectives.records.trace import Trace, TracedLink, Unfinished, name_in_library
from collectives.step import Kind, extent
from simcomm.compiled.kernel.arrays import Floats
from simcomm.compiled.mean_division import division_seconds
from simcomm.compiled.planning.engine_input import EngineInput
from simcomm.compiled.timing import MessageTimes, PostTimes, Timing
from simcomm.model.traced_links import trace_links

StepSite = tuple[int, int, int]  # rank, channel, step
Indices = npt.NDArray[Any]


def make_trace(inputs: EngineInput, timing: Timing, facts: dict[str, float], *, record: bool = True) -> Trace:
    """Return the Trace of a timing; without ``record`` only of its times, and of what never ended.

    Messages are recorded where the timing has the times of each, and the schedule is written out.
    """
    only = replace(trace_nothing(inputs, timing.elapsed, timing.method), facts=facts)
    if timing.times is None or (not record and timing.elapsed < inf):
        return only
    spans = Spans.of([*trace_reductions(inputs, timing), *_trace_mean_division(inputs, timing)]).sorted()
    elapsed = timing.elapsed
    if elapsed == inf:
        ends = timing.times.end[np.isfinite(timing.times.end)]
        elapsed = max(float(spans.end.max(initial=0.0)), float(ends.max(initial=0.0)))
        facts = facts | {"time_min_s": elapsed, "time_max_s": elapsed}
    fails_at = inputs.trouble.fails_at
    failed = sorted(timing.failed, key=lambda rank: (fails_at(rank), rank))
    found = replace(
        only,
        elapsed=elapsed,
        facts=facts,
        failed={rank: fails_at(rank) for rank in failed},
        unfinished=trace_unfinished(inputs, timing),
    )
    if not record:
        return found
    links = link_records(inputs, [timing], elapsed)
    return replace(found, messages=trace_messages(inputs, timing), spans=spans, links=links)


def trace_nothing(inputs: EngineInput, elapsed: float, method: str) -> Trace:
    """Return a Trace of no more than a time, and how it was found."""
    schedule, cluster = inputs.schedule, inputs.cluster
    return Trace(
        schedule.algorithm.full_name,
        "predicted",
        cluster.world_size,
        elapsed,
        nodes=list(cluster.graph),
        hosts=list(cluster.hosts),
        engine="compiled",
        method=method,
        algorithm=name_in_library(schedule.algorithm),
        root=schedule.root,
        chunks=schedule.chunks,
    )


def trace_messages(inputs: EngineInput, timing: Timing, base: float = 0.0) -> Messages:
    """Return the messages that arrived, in the order of a Trace; the timing counts from ``base`` seconds on."""
    times, posted = _recorded(timing)
    arrived = np.flatnonzero(np.isfinite(times.end))
    arrived = arrived[np.lexsort((times.src[arrived], times.begin[arrived]))]
    columns, (sends, receives) = inputs.schedule.table().columns, _halves(inputs)
    send, receive = sends[arrived], receives[arrived]
    return Messages(
        pair_routes(inputs),
        **{name: shrink(getattr(times, name), arrived) for name in ("src", "dst", "step", "chunk", "channel")},
        nbytes=shrink(times.nbytes.astype(np.int64), arrived),
        end=base + times.end[arrived],
        route=shrink(inputs.schedule_plan.plan.messages["route"], arrived),
        dst_step=shrink(columns.step, receive),
        count=shrink(columns.count, send),
        into=shrink(columns.into, receive),
        reduces=columns.kind[receive] == Kind.RECV_REDUCE,
        src_posted=base + posted.src[arrived],
        dst_posted=base + posted.dst[arrived],
        collective=inputs.index,
    )


def pair_routes(inputs: EngineInput) -> Routes:
    """Return the route of each pair of ranks that send to each other, in the order of the plan's pairs."""
    nodes = list(inputs.cluster.graph)
    number = {node: place for place, node in enumerate(nodes)}
    ends = np.array([(number[a], number[b]) for a, b in inputs.cluster.graph.edges], np.int64).reshape(-1, 2)
    link, first = inputs.routes.hop_link, inputs.routes.first_hop.astype(np.int64)
    hosts = np.array([number[host] for host in inputs.cluster.hosts], np.int64)
    begins = first[:-1] + np.arange(len(first) - 1)  # a route has a node more than links
    node = np.empty(len(link) + len(begins), np.int64)
    node[begins] = hosts[inputs.pairs.src]
    node[np.delete(np.arange(len(node)), begins)] = ends[link, 1]
    return Routes(np.append(begins, len(node)), node, nodes)


def _recorded(timing: Timing) -> tuple[MessageTimes, PostTimes]:
    assert timing.times is not None, "the timing has no times of single messages"
    assert timing.posted is not None, "the timing has no times of single messages"
    return timing.times, timing.posted


def trace_unfinished(inputs: EngineInput, timing: Timing) -> list[Unfinished]:
    """Return the halves that were posted, of messages that never arrived; in order of time."""
    times, posted = _recorded(timing)
    columns, found = inputs.schedule.table().columns, list[Unfinished]()
    stuck = np.flatnonzero(np.isnan(times.end))
    for sends, since, ends in zip((True, False), posted, _halves(inputs), strict=True):
        there = stuck[np.isfinite(since[stuck])]
        said = (columns.rank, columns.peer, columns.step, columns.channel, columns.chunk if sends else columns.into)
        rows: Iterator[list[Any]] = zip(*(column[ends[there]].tolist() for column in said), strict=True)
        count, under_way = columns.count[ends[there]].tolist(), np.isfinite(times.begin[there]).tolist()
        for row, at, flies, chunks in zip(rows, since[there].tolist(), under_way, count, strict=True):
            rank, peer, step, channel, chunk = row
            found.append(Unfinished(rank, peer, sends, step, channel, at, flies, chunk, chunks, inputs.index))
    return sorted(found, key=lambda one: (one.since, one))


def _halves(inputs: EngineInput) -> tuple[Indices, Indices]:
    """Return the send and the receive of each message sent, as indices into the schedule's table."""
    columns, sends = inputs.schedule.table().columns, inputs.schedule_plan.sends
    assert sends is not None, "only a schedule written out has a table: use with_table"
    return sends, columns.match[sends]


def trace_reductions(inputs: EngineInput, timing: Timing) -> Iterator[Span]:
    """Yield each reduction and copy of each rank: a step's come after all its messages, received ones first."""
    if inputs.transport.gamma == 0:
        return
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
                yield Span(rank, "reduce", step, begin, begin + seconds, channel, inputs.index)
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
    if inputs.request.op != "mean" or inputs.transport.gamma == 0:
        return
    last = inputs.schedule.steps
    for rank, (end, busy) in enumerate(zip(timing.finished.tolist(), division_seconds(inputs).tolist(), strict=True)):
        if busy > 0 and end < inf:
            yield Span(rank, "reduce", last, end - busy, end)


def link_records(inputs: EngineInput, timings: Iterable[Timing], elapsed: float) -> list[TracedLink]:
    """Return every link with the bytes of the messages that began in any of these runs and crossed it."""
    routes, messages = inputs.routes, inputs.schedule_plan.plan.messages
    nbytes = np.zeros(len(inputs.pairs.src))
    for timing in timings:
        begun = np.isfinite(_recorded(timing)[0].begin)
        nbytes += np.bincount(messages["route"][begun], messages["nbytes"][begun], len(nbytes))
    crossing = np.repeat(nbytes, np.diff(routes.first_hop))
    carried = np.bincount(routes.hop_link, crossing, len(routes.alone))
    return trace_links(inputs.cluster, inputs.transport, carried.tolist(), elapsed, inputs.trouble)
