"""The Trace of a run of the compiled engine, the same as the reference engine records."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt

from collectives.records.columns import Bools, Ints, shrink
from collectives.records.messages import MessageRoutes, Messages
from collectives.records.spans import Span, Spans, join_spans
from collectives.records.trace import Trace, TracedLink, Unfinished
from collectives.records.waits import BriefTrace
from collectives.step import Kind
from simcomm.cluster.cluster import Cluster
from simcomm.cluster.graph import each_link
from simcomm.compiled.engine import MessageTimes, Timing
from simcomm.compiled.kernel.arrays import Floats
from simcomm.compiled.planning.engine_input import EngineInput
from simcomm.compiled.planning.faults import division_seconds
from simcomm.compiled.planning.routes import Pairs, Routes
from simcomm.compiled.shortcuts.waits import Standstill, path_by_steps, waited_by_steps
from simcomm.model.faults import Faults
from simcomm.model.traced_links import trace_links

Indices = npt.NDArray[Any]


def make_trace(inputs: EngineInput, timing: Timing, facts: dict[str, float], *, record: bool = True) -> Trace:
    """Return the Trace of a timing; without ``record`` only of its times, and of what never ended.

    Messages are recorded where the timing has the times of each, and the schedule is written out; of a timing by steps
    there is who waited for whom in their place.
    """
    only = replace(trace_nothing(inputs, timing.elapsed, timing.method), facts=facts)
    if timing.elapsed == inf:
        end = stopped(inputs, timing)
        facts = facts | {"time_min_s": end.last, "time_max_s": end.last}
        failed = failures(inputs.faults, timing.failed)
        only = replace(only, elapsed=end.last, facts=facts, failed=failed, unfinished=list(end.unfinished))
    if timing.by_steps is not None:
        division = _trace_mean_division(inputs, timing)
        path = path_by_steps([(0.0, timing.by_steps)], division, timing.finished)
        return BriefTrace.of(only, waited_by_steps([timing.by_steps]), path)
    if not record or timing.times is None:
        return only
    spans = join_spans([trace_reductions(inputs, timing), Spans.of(_trace_mean_division(inputs, timing))]).sorted()
    links = link_records(inputs, [timing], only.elapsed)  # before there are messages: both take memory while made
    whole = replace(only, messages=trace_messages(inputs, timing), spans=spans, links=links)
    return whole.of_program(inputs.schedule.algorithm)


def stopped(inputs: EngineInput, timing: Timing) -> Standstill:
    """Return when the last message or computing of a run ended, and what ranks wait for then."""
    done = timing.finished[np.isfinite(timing.finished)]
    if timing.standstill is None and timing.elapsed == inf:
        ends = _recorded(timing).end
        ends = ends[np.isfinite(ends)]
        last = max(float(each.max(initial=0.0)) for each in (ends, trace_reductions(inputs, timing).end, done))
        return Standstill(last, tuple(trace_unfinished(inputs, timing)))
    last, waiting = timing.standstill or Standstill(0.0, ())
    return Standstill(max(last, float(done.max(initial=0.0))), waiting)


def failures(faults: Faults, ranks: Iterable[int]) -> dict[int, float]:
    """Return when the ranks that failed did, the first first."""
    return dict(sorted(((rank, faults.fails_at(rank)) for rank in ranks), key=lambda one: one[::-1]))


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
        root=schedule.root,
        chunks=schedule.chunks,
    ).of_program(schedule.algorithm)


def trace_messages(inputs: EngineInput, timing: Timing, base: float = 0.0) -> Messages:
    """Return the messages that arrived; the timing counts from ``base`` seconds on.

    They are in the order of a Trace.
    """
    routes = pair_routes(inputs.cluster, inputs.pairs, inputs.routes)
    return Messages(routes, collective=inputs.index, **_message_columns(inputs, timing, base))


def _message_columns(inputs: EngineInput, timing: Timing, base: float) -> dict[str, npt.NDArray[Any]]:
    """Return the columns of the messages that arrived; what needs most memory meanwhile is made first."""
    times = _recorded(timing)
    arrived = np.flatnonzero(np.isfinite(times.end))
    arrived = arrived[np.lexsort((times.src[arrived], times.begin[arrived]))]
    found = {"nbytes": shrink(times.nbytes.astype(np.int64), arrived)} | _receiver_columns(inputs, arrived)
    found |= {name: shrink(getattr(times, name), arrived) for name in ("src", "dst", "step", "chunk", "channel")}
    found["route"] = shrink(inputs.schedule_plan.plan.messages["route"], arrived)
    for name, same in (("dst_step", "step"), ("into", "chunk")):
        if np.array_equal(found[name], found[same]):
            found[name] = found[same]
    for name in ("end", "src_posted", "dst_posted"):
        found[name] = getattr(times, name)[arrived]
        found[name] += base
    return found


def _receiver_columns(inputs: EngineInput, arrived: Indices) -> dict[str, npt.NDArray[Any]]:
    """Return what the schedule says of messages beside what they are called by their sender."""
    columns, (sends, receives) = inputs.schedule.table().columns, _halves(inputs)
    count = shrink(columns.count, sends[arrived])
    receive = receives[arrived]
    return {
        "count": count,
        "dst_step": shrink(columns.step, receive),
        "into": shrink(columns.into, receive),
        "reduces": columns.kind[receive] == Kind.RECV_REDUCE,
    }


def pair_routes(cluster: Cluster, pairs: Pairs, routes: Routes) -> MessageRoutes:
    """Return the nodes of the route of each pair of ranks, in the order of the pairs."""
    nodes = list(cluster.graph)
    number = {node: place for place, node in enumerate(nodes)}
    ends = np.array([(number[a], number[b]) for a, b, _ in each_link(cluster.graph)], np.int64).reshape(-1, 2)
    link, first = routes.hop_link, routes.first_hop.astype(np.int64)
    hosts = np.array([number[host] for host in cluster.hosts], np.int64)
    begins = first[:-1] + np.arange(len(first) - 1)  # a route has a node more than links
    node = np.empty(len(link) + len(begins), np.int64)
    node[begins] = hosts[pairs.src]
    node[np.delete(np.arange(len(node)), begins)] = ends[link, 1]
    return MessageRoutes(np.append(begins, len(node)), node, nodes)


def _recorded(timing: Timing) -> MessageTimes:
    assert timing.times is not None, "the timing has no times of single messages"
    return timing.times


def trace_unfinished(inputs: EngineInput, timing: Timing) -> list[Unfinished]:
    """Return the halves that were posted, of messages that never arrived; in order of time."""
    times = _recorded(timing)
    columns, found = inputs.schedule.table().columns, list[Unfinished]()
    stuck = np.flatnonzero(np.isnan(times.end))
    for sends, since, ends in zip((True, False), (times.src_posted, times.dst_posted), _halves(inputs), strict=True):
        there = stuck[np.isfinite(since[stuck])]
        said = (columns.rank, columns.peer, columns.step, columns.channel, columns.chunk if sends else columns.into)
        rows: Iterator[list[Any]] = zip(*(column[ends[there]].tolist() for column in said), strict=True)
        count, under_way = columns.count[ends[there]].tolist(), np.isfinite(times.begin[there]).tolist()
        for row, at, flies, chunks in zip(rows, since[there].tolist(), under_way, count, strict=True):
            rank, peer, step, channel, chunk = row
            found.append(
                Unfinished(
                    rank=rank,
                    peer=peer,
                    sends=sends,
                    step=step,
                    channel=channel,
                    since=at,
                    is_under_way=flies,
                    chunk=chunk,
                    count=chunks,
                    collective=inputs.index,
                )
            )
    return sorted(found, key=lambda one: (one.since, one))


def _halves(inputs: EngineInput) -> tuple[Indices, Indices]:
    """Return the send and the receive of each message sent, as indices into the schedule's table."""
    columns, sends = inputs.schedule.table().columns, inputs.schedule_plan.sends
    assert sends is not None, "only a schedule written out has a table: use with_table"
    return sends, columns.match[sends]


def trace_reductions(inputs: EngineInput, timing: Timing) -> Spans:
    """Return each reduction and copy of each rank: a step's come after all its messages, received ones first."""
    if timing.reductions is not None:
        return timing.reductions
    if inputs.transport.gamma == 0:
        return Spans.of(())
    columns = inputs.schedule.table().columns
    if not len(columns.kind):
        return Spans.of(())
    order = np.lexsort((columns.kind >= Kind.COPY, columns.step, columns.channel, columns.rank))
    rank, channel, step = (column[order] for column in columns[:3])
    program = np.append(True, (np.diff(rank) != 0) | (np.diff(channel) != 0))
    location = np.cumsum(program | np.append(True, np.diff(step) != 0)) - 1  # a step of a program has one number
    first = np.searchsorted(location, np.arange(location[-1] + 1))
    location_of = np.empty(len(order), np.int64)
    location_of[order] = location
    seconds = _operation_seconds(inputs)[order]
    computes = np.flatnonzero((columns.kind[order] > Kind.RECV) & (seconds > 0))
    starts = np.zeros(inputs.schedule.world_size) if inputs.starts is None else np.asarray(inputs.starts)
    fails_at = np.array([inputs.faults.fails_at(number) for number in range(inputs.schedule.world_size)])
    ready = _last_arrivals(inputs, _recorded(timing), location_of, len(first))
    ready = np.where(program[first], np.maximum(ready, starts[rank[first]]), ready)
    begin = begin_operations(ready, program[first], location[computes], seconds[computes], fails_at[rank[first]])
    done = np.isfinite(begin)
    at, begin = computes[done], begin[done]
    if not len(at):
        return Spans.of(())
    locations = {"rank": rank[at], "step": step[at], "channel": channel[at]}
    return Spans(("reduce",), name=0, begin=begin, end=begin + seconds[at], collective=inputs.index, **locations)


def begin_operations(ready: Floats, is_first: Bools, location: Ints, seconds: Floats, fails_at: Floats) -> Floats:
    """Return when each operation begins, one after the other in its step; infinite where its rank failed before.

    ``ready``, ``is_first`` and ``fails_at`` are of steps, program by program: when the messages have arrived, which are
    the first of their program, when the rank fails. ``location`` numbers the step of each operation. A step begins when
    it is ready and the one before has ended: that is the first, unless the step before computed longer.

    >>> steps = np.array([0.0, 1.0]), np.array([True, False])
    >>> begin_operations(*steps, np.array([0, 0, 1]), np.array([1.0, 0.5, 1.0]), np.array([9.0, 9.0])).tolist()
    [0.0, 1.0, 1.5]
    """
    number = np.bincount(location, minlength=len(ready))
    first = np.cumsum(number) - number
    now, ends, begin = ready.copy(), ready.copy(), np.full(len(location), inf)
    late = np.arange(len(ready))
    while len(late):
        at = now[late]
        for nth in range(number[late].max()):
            more = np.flatnonzero(number[late] > nth)
            one, since = first[late[more]] + nth, at[more]
            lives = since < fails_at[late[more]]
            begin[one] = np.where(lives, since, inf)
            at[more] = np.where(lives, since + seconds[one], since)
        ends[late] = np.where(at < fails_at[late], at, inf)
        following = late[late < len(ready) - 1] + 1
        following = following[~is_first[following]]
        late = following[ends[following - 1] > now[following]]
        now[late] = ends[late - 1]
    return begin


def _operation_seconds(inputs: EngineInput) -> Floats:
    """Return how long each operation of the table computes, if it does."""
    columns = inputs.schedule.table().columns
    slowdown = inputs.faults.slowdown(inputs.index, columns.rank, columns.channel, columns.step)
    return inputs.sizes.gamma * inputs.sizes.nbytes(columns.into, columns.count) * slowdown


def _last_arrivals(inputs: EngineInput, times: MessageTimes, location_of: Ints, locations: int) -> Floats:
    """Return when the last message of each step ended; infinite where one never did, 0 where there is none."""
    latest = np.zeros(locations)
    for ends in _halves(inputs):
        np.maximum.at(latest, location_of[ends], np.nan_to_num(times.end, nan=inf))
    return latest


def _trace_mean_division(inputs: EngineInput, timing: Timing) -> Iterator[Span]:
    """Yield the mean's division at the end of each rank that holds a result; ``timing`` includes it."""
    if inputs.call.op != "mean" or inputs.transport.gamma == 0:
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
        begun = np.isfinite(_recorded(timing).begin)
        nbytes += np.bincount(messages["route"][begun], messages["nbytes"][begun], len(nbytes))
    crossing = np.repeat(nbytes, np.diff(routes.first_hop))
    carried = np.bincount(routes.hop_link, crossing, len(routes.alone))
    return trace_links(inputs.cluster, inputs.transport, carried.tolist(), elapsed, inputs.faults)
