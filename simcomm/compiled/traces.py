"""What the compiled engine found, as the record that everything else reads; for cases small enough to look at."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from collectives.schedule import Schedule
from collectives.step import Kind, extent
from collectives.trace import Message, Span, Trace, TracedLink
from collectives.tracing import as_table
from simcomm.compiled.question import Question
from simcomm.compiled.scaling import scaled_elements
from simcomm.compiled.timing import MessageTimes, Timing


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
    order = np.argsort(times.end, kind="stable")
    columns = [column[order].tolist() for column in times]
    for src, dst, channel, step, chunk, nbytes, begin, end in zip(*columns, strict=True):
        yield Message(src, dst, step, chunk, int(nbytes), begin, end, routes(hosts[src], hosts[dst]), channel)


def reductions_of(question: Question, times: MessageTimes) -> Iterator[Span]:
    """Each reduction and copy of each rank: a step's come after all its messages, received ones first."""
    gamma, columns = question.transport.gamma, as_table(question.program).columns
    if gamma == 0:
        return
    through = _through(question, times)
    starts, now = question.starts, dict[tuple[int, int], float]()
    order = np.lexsort((columns.kind >= Kind.COPY, columns.step, columns.channel, columns.rank))
    before = None
    said = (column[order].tolist() for column in (*columns[:4], columns.into, columns.count))
    for rank, channel, step, kind, into, count in zip(*said, strict=True):
        stage = (rank, channel, step)
        if stage != before:
            begun = 0.0 if starts is None else float(starts[rank])
            now[rank, channel] = max(now.get((rank, channel), begun), through.get(stage, 0.0))
            before = stage
        if kind > Kind.RECV:
            begin = now[rank, channel]
            now[rank, channel] += gamma * extent(into, count, question.n, question.program.chunks) * question.itemsize
            if now[rank, channel] > begin:
                yield Span(rank, "reduce", step, begin, now[rank, channel])


def _through(question: Question, times: MessageTimes) -> dict[tuple[int, int, int], float]:
    """When the last message of each (rank, channel, step) was through."""
    columns, demand = as_table(question.program).columns, question.demand
    assert demand.sends is not None
    latest: dict[tuple[int, int, int], float] = {}
    for ends in (demand.sends, columns.match[demand.sends]):
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
