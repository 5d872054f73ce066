"""Convert a result of the compiled engine to a trace that equals the reference engine's trace."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt

from collectives.records.columns import Bools, Ints, shrink
from collectives.records.messages import MessageRoutes, Messages
from collectives.records.spans import Span, Spans
from collectives.records.trace import Trace, TracedLink, Unfinished
from collectives.step import Kind
from simcomm.cluster.cluster import Cluster
from simcomm.compiled.engine import MessageTimes, Timing
from simcomm.compiled.kernel.arrays import Floats
from simcomm.compiled.planning.engine_input import EngineInput
from simcomm.compiled.planning.faults import division_seconds
from simcomm.compiled.planning.routes import Routes
from simcomm.compiled.planning.schedule_plan import Pairs
from simcomm.compiled.shortcuts.standstill import Standstill
from simcomm.model.faults import Faults
from simcomm.model.traced_links import trace_links

Indices = npt.NDArray[Any]


def make_trace(inputs: EngineInput, timing: Timing, facts: dict[str, float], *, record: bool = True) -> Trace:
    """Return the trace of a run. It has messages, spans and links only if they are known and ``record`` is set.

    Without them, it has only its times, failed ranks and unfinished operations.
    """
    only = replace(trace_nothing(inputs, timing.elapsed, timing.method), facts=facts)
    if timing.elapsed == inf:
        end = stopped(inputs, timing)
        facts = facts | {"time_min_s": end.last, "time_max_s": end.last}
        failed = failures(inputs.faults, timing.failed)
        only = replace(only, elapsed=end.last, facts=facts, failed=failed, unfinished=list(end.unfinished))
    if not record or timing.times is None:
        return only
    spans = Spans.join([trace_reductions(inputs, timing), Spans.of(_trace_mean_division(inputs, timing))]).sorted()
    links = link_records(inputs, [timing], only.elapsed)  # first, to save memory
    full = replace(only, messages=trace_messages(inputs, timing), spans=spans, links=links)
    return full.of_program(inputs.schedule.algorithm)


def stopped(inputs: EngineInput, timing: Timing) -> Standstill:
    """Return the time at which a run stopped, and the operations that are then unfinished."""
    done = timing.finished[np.isfinite(timing.finished)]
    if timing.standstill is None and timing.elapsed == inf:
        ends = _recorded(timing).end
        ends = ends[np.isfinite(ends)]
        last = max(float(each.max(initial=0.0)) for each in (ends, trace_reductions(inputs, timing).end, done))
        return Standstill(last, tuple(trace_unfinished(inputs, timing)))
    last, waiting = timing.standstill or Standstill(0.0, ())
    return Standstill(max(last, float(done.max(initial=0.0))), waiting)


def failures(faults: Faults, ranks: Iterable[int]) -> dict[int, float]:
    """Return the failure time of each failed rank, earliest first."""
    return dict(sorted(((rank, faults.fails_at(rank)) for rank in ranks), key=lambda failure: failure[::-1]))


def trace_nothing(inputs: EngineInput, elapsed: float, method: str) -> Trace:
    """Return a trace that contains only the elapsed time, the method and the cluster."""
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
    """Return the messages that arrived, sorted as in a trace. Add ``base`` seconds to their times."""
    routes = pair_routes(inputs.cluster, inputs.pairs, inputs.routes)
    return Messages(routes, collective=inputs.index, **_message_columns(inputs, timing, base))


def _message_columns(inputs: EngineInput, timing: Timing, base: float) -> dict[str, npt.NDArray[Any]]:
    times = _recorded(timing)
    arrived = np.flatnonzero(np.isfinite(times.end))
    arrived = arrived[np.lexsort((times.src[arrived], times.begin[arrived]))]
    columns = {"nbytes": shrink(times.nbytes.astype(np.int64), arrived)} | _receiver_columns(inputs, arrived)
    columns |= {name: shrink(getattr(times, name), arrived) for name in ("src", "dst", "step", "chunk", "channel")}
    columns["route"] = shrink(inputs.schedule_plan.plan.messages["route"], arrived)
    for name, same in (("dst_step", "step"), ("into", "chunk")):
        if np.array_equal(columns[name], columns[same]):
            columns[name] = columns[same]
    for name in ("end", "src_posted", "dst_posted"):
        columns[name] = getattr(times, name)[arrived]
        columns[name] += base
    return columns


def _receiver_columns(inputs: EngineInput, arrived: Indices) -> dict[str, npt.NDArray[Any]]:
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
    """Return the nodes on the route of each pair of ranks."""
    nodes = list(cluster.graph)
    number = {node: place for place, node in enumerate(nodes)}
    ends = np.array([(number[a], number[b]) for a, b in cluster.graph.edges], np.int64).reshape(-1, 2)
    link, first = routes.hop_link, routes.first_hop.astype(np.int64)
    hosts = np.array([number[host] for host in cluster.hosts], np.int64)
    begins = first[:-1] + np.arange(len(first) - 1)  # a route has one node more than links
    node = np.empty(len(link) + len(begins), np.int64)
    node[begins] = hosts[pairs.src]
    node[np.delete(np.arange(len(node)), begins)] = ends[link, 1]
    return MessageRoutes(np.append(begins, len(node)), node, nodes)


def _recorded(timing: Timing) -> MessageTimes:
    assert timing.times is not None, "the timing has no times of single messages"
    return timing.times


def trace_unfinished(inputs: EngineInput, timing: Timing) -> list[Unfinished]:
    """Return the posted sends and receives of messages that never arrived, in chronological order."""
    times = _recorded(timing)
    columns, operations = inputs.schedule.table().columns, list[Unfinished]()
    stuck = np.flatnonzero(np.isnan(times.end))
    for sends, since, ends in zip((True, False), (times.src_posted, times.dst_posted), _halves(inputs), strict=True):
        posted = stuck[np.isfinite(since[stuck])]
        fields = {name: getattr(columns, name)[ends[posted]] for name in ("rank", "peer", "step", "channel", "count")}
        fields |= {"chunk": (columns.chunk if sends else columns.into)[ends[posted]], "since": since[posted]}
        fields["is_under_way"] = np.isfinite(times.begin[posted])
        for row in zip(*(column.tolist() for column in fields.values()), strict=True):
            values = dict(zip(fields, row, strict=True))
            operations.append(Unfinished(**values, sends=sends, collective=inputs.index))
    return sorted(operations, key=lambda operation: (operation.since, operation))


def _halves(inputs: EngineInput) -> tuple[Indices, Indices]:
    """Return, for each sent message, the rows of its send and of its receive in the schedule's table."""
    columns, sends = inputs.schedule.table().columns, inputs.schedule_plan.sends
    assert sends is not None, "only a schedule written out has a table: use with_table"
    return sends, columns.match[sends]


def trace_reductions(inputs: EngineInput, timing: Timing) -> Spans:
    """Return the reductions and copies of each rank as spans. In a step, received chunks are reduced first."""
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
    location = np.cumsum(program | np.append(True, np.diff(step) != 0)) - 1  # one number per step of a program
    first = np.searchsorted(location, np.arange(location[-1] + 1))
    location_of = np.empty(len(order), np.int64)
    location_of[order] = location
    slowdown = inputs.faults.slowdown(inputs.index, columns.rank, columns.channel, columns.step)
    seconds = (inputs.sizes.gamma * inputs.sizes.nbytes(columns.into, columns.count) * slowdown)[order]
    computes = np.flatnonzero((columns.kind[order] > Kind.RECV) & (seconds > 0))
    starts = np.zeros(inputs.schedule.world_size) if inputs.starts is None else np.asarray(inputs.starts)
    fails_at = np.array([inputs.faults.fails_at(number) for number in range(inputs.schedule.world_size)])
    ready = np.zeros(len(first))  # arrival of each step's last message; infinity if it never arrives
    for halves in _halves(inputs):
        np.maximum.at(ready, location_of[halves], np.nan_to_num(_recorded(timing).end, nan=inf))
    ready = np.where(program[first], np.maximum(ready, starts[rank[first]]), ready)
    begin = begin_operations(ready, program[first], location[computes], seconds[computes], fails_at[rank[first]])
    done = np.isfinite(begin)
    at, begin = computes[done], begin[done]
    if not len(at):
        return Spans.of(())
    locations = {"rank": rank[at], "step": step[at], "channel": channel[at]}
    return Spans(("reduce",), name=0, begin=begin, end=begin + seconds[at], collective=inputs.index, **locations)


def begin_operations(ready: Floats, is_first: Bools, location: Ints, seconds: Floats, fails_at: Floats) -> Floats:
    """Return the time at which each operation begins, or infinity if its rank has failed by then.

    A step's operations run one after the other. A step begins when its messages have arrived and the previous step has
    ended. ``location`` is the index of each operation's step. The other arrays have an entry per step: ``ready`` is the
    time of its last arrival in seconds, ``is_first`` marks a program's first step, and ``fails_at`` is when its rank
    fails.

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
            operation, since = first[late[more]] + nth, at[more]
            lives = since < fails_at[late[more]]
            begin[operation] = np.where(lives, since, inf)
            at[more] = np.where(lives, since + seconds[operation], since)
        ends[late] = np.where(at < fails_at[late], at, inf)
        following = late[late < len(ready) - 1] + 1
        following = following[~is_first[following]]
        late = following[ends[following - 1] > now[following]]
        now[late] = ends[late - 1]
    return begin


def _trace_mean_division(inputs: EngineInput, timing: Timing) -> Iterator[Span]:
    if inputs.call.op != "mean" or inputs.transport.gamma == 0:
        return
    last = inputs.schedule.steps
    for rank, (end, busy) in enumerate(zip(timing.finished.tolist(), division_seconds(inputs).tolist(), strict=True)):
        if busy > 0 and end < inf:
            yield Span(rank, "reduce", last, end - busy, end)


def link_records(inputs: EngineInput, timings: Iterable[Timing], elapsed: float) -> list[TracedLink]:
    """Return all links of the cluster, with the bytes that crossed each link in all runs of ``timings``."""
    routes, messages = inputs.routes, inputs.schedule_plan.plan.messages
    nbytes = np.zeros(len(inputs.pairs.src))
    for timing in timings:
        begun = np.isfinite(_recorded(timing).begin)
        nbytes += np.bincount(messages["route"][begun], messages["nbytes"][begun], len(nbytes))
    crossing = np.repeat(nbytes, np.diff(routes.first_hop))
    carried = np.bincount(routes.hop_link, crossing, len(routes.alone))
    return trace_links(inputs.cluster, inputs.transport, carried.tolist(), elapsed, inputs.faults)
