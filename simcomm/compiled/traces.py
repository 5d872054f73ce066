"""What the compiled engine found, as the record that everything else reads; for cases small enough to look at."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from collectives.schedule import Schedule
from collectives.step import Kind, extent
from collectives.trace import Message, Span, Trace, TracedLink
from collectives.tracing import as_table
from simcomm.compiled.question import Question
from simcomm.compiled.scaling import scaled_elements
from simcomm.compiled.timing import MessageTimes, Timing

Stage = tuple[int, int, int]  # rank, channel, step
Indices = npt.NDArray[Any]
ROUNDING = 1e-12  # of a time


def recorded(question: Question, timing: Timing, op: str, facts: dict[str, float]) -> Trace:
    """The same record that the simpy engine makes; of the times only where ``timing`` has none of its messages."""
    cluster, title = question.cluster, question.program.algorithm.full_name
    nodes, hosts = list(cluster.graph), list(cluster.hosts)
    if timing.times is None:
        only = Trace(title, "predicted", cluster.world_size, timing.elapsed, nodes=nodes, hosts=hosts, facts=facts)
        return replace(only, engine="compiled", way=timing.way)
    messages = sorted(messages_of(question, timing.times), key=lambda m: (m.begin, m.src))
    spans = [*reductions_of(question, timing.times), *_scaling(question, timing, op)]
    spans.sort(key=lambda span: (span.begin, span.rank))
    links = links_of(question, messages)
    return Trace(
        title, "predicted", cluster.world_size, timing.elapsed, messages, spans, links, nodes, hosts, facts,
        "compiled", timing.way,
    )  # fmt: skip


def messages_of(question: Question, times: MessageTimes) -> Iterator[Message]:
    """In the order in which they end."""
    routes, hosts = question.cluster.routes(), question.cluster.hosts
    posted = {stage: since for stage, since, _ in _stages(question, times)}
    columns = as_table(question.program).columns
    order = np.argsort(times.end, kind="stable")
    said = [column[order].tolist() for column in times]
    ends = (zip(*(column[half[order]].tolist() for column in columns[:3]), strict=True) for half in _halves(question))
    for (src, dst, channel, step, chunk, nbytes, begin, end), *stages in zip(
        zip(*said, strict=True), *ends, strict=True
    ):
        waited = [_waited(begin, posted[stage]) for stage in stages]
        yield Message(src, dst, step, chunk, int(nbytes), begin, end, routes(hosts[src], hosts[dst]), channel, *waited)


def _halves(question: Question) -> tuple[Indices, Indices]:
    """Of each message the send and the receive in the table of operations."""
    columns, sends = as_table(question.program).columns, question.demand.sends
    assert sends is not None
    return sends, columns.match[sends]


def _waited(begin: float, posted: float) -> float:
    """Seconds from one to the other, and none where only rounding tells them apart."""
    return begin - posted if begin - posted > ROUNDING * begin else 0.0


def reductions_of(question: Question, times: MessageTimes) -> Iterator[Span]:
    """Each reduction and copy of each rank: a step's come after all its messages, received ones first."""
    for _, _, spans in _stages(question, times):
        yield from spans


def _stages(question: Question, times: MessageTimes) -> Iterator[tuple[Stage, float, list[Span]]]:
    """Each step of each channel of each rank: when it was posted, and what it reduced and copied at its end."""
    gamma, columns = question.transport.gamma, as_table(question.program).columns
    through = _through(question, times)
    starts, now = question.starts, dict[tuple[int, int], float]()
    order = np.lexsort((columns.kind >= Kind.COPY, columns.step, columns.channel, columns.rank))
    said = (column[order].tolist() for column in (*columns[:4], columns.into, columns.count))
    for stage, operations in groupby(zip(*said, strict=True), key=itemgetter(0, 1, 2)):
        rank, channel, step = stage
        posted = now.get((rank, channel), 0.0 if starts is None else float(starts[rank]))
        begin, spans = max(posted, through.get(stage, 0.0)), list[Span]()
        for _, _, _, kind, into, count in operations:
            if kind > Kind.RECV:
                nbytes = extent(into, count, question.n, question.program.chunks) * question.itemsize
                spans.append(Span(rank, "reduce", step, begin, begin + gamma * nbytes))
                begin = spans[-1].end
        now[rank, channel] = begin
        yield stage, posted, [span for span in spans if span.end > span.begin]


def _through(question: Question, times: MessageTimes) -> dict[Stage, float]:
    """When the last message of each (rank, channel, step) was through."""
    columns = as_table(question.program).columns
    latest: dict[Stage, float] = {}
    for ends in _halves(question):
        stages = zip(*(column[ends].tolist() for column in columns[:3]), strict=True)
        for stage, end in zip(stages, times.end.tolist(), strict=True):
            latest[stage] = max(latest.get(stage, 0.0), end)
    return latest


def _scaling(question: Question, timing: Timing, op: str) -> Iterator[Span]:
    """The mean's division at the end of each rank that holds a result; ``timing`` includes it."""
    if op != "mean":
        return
    program = question.program
    elements = scaled_elements(program.algorithm.spec, program.world_size, program.root, question.n)
    seconds = question.transport.gamma * question.itemsize * elements
    last = program.steps if isinstance(program, Schedule) else int(as_table(program).columns.step.max(initial=-1)) + 1
    for rank, (end, busy) in enumerate(zip(timing.finished.tolist(), seconds.tolist(), strict=True)):
        if busy > 0:
            yield Span(rank, "reduce", last, end - busy, end)


def links_of(question: Question, messages: list[Message]) -> list[TracedLink]:
    graph = question.cluster.graph
    carried = dict.fromkeys(graph.edges, 0.0)
    for message in messages:
        for edge in zip(message.route, message.route[1:], strict=False):
            carried[edge] += message.nbytes
    return [
        TracedLink(a, b, data["bandwidth"], data["latency"], carried[a, b]) for a, b, data in graph.edges(data=True)
    ]
