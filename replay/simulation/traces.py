"""Build the Trace of a replayed run: its messages, its links, and its compute spans."""

import numpy as np

from collectives.records.columns import Bools, Ints
from collectives.records.messages import MessageRoutes, Messages
from collectives.records.spans import Spans
from collectives.records.trace import Trace, TracedLink
from replay.recording import Did, Mark, Recording
from replay.simulation.figures import find_unfinished
from replay.simulation.layout import NO_RANK
from replay.simulation.plan import number_routes
from replay.simulation.replay import ReplayedRun
from simcomm.compiled.planning.routes import find_routes
from simcomm.compiled.traces import pair_routes
from simcomm.model.faults import DIVISION, PROGRAM
from simcomm.model.traced_links import trace_links

COMPUTE, REDUCE = Mark("compute"), "reduce"  # names of spans: computing without a mark, and reductions
METHOD = "replay"
NAMES = ("src", "dst", "step", "chunk", "channel", "dst_step", "count", "into", "reduces", "collective")


def make_trace(run: ReplayedRun) -> Trace:
    cluster, failed = run.cluster, {}
    if run.faults.fails_ranks:
        agents = run.world.agents["failed"][: len(run.recording.streams)] > 0
        ranks = sorted({run.recording.streams[at].rank for at in np.flatnonzero(agents).tolist()})
        failed = {rank: run.faults.fails_at(rank) for rank in ranks}
    messages, links = _messages_and_links(run)
    return Trace(
        title=run.recording.title,
        kind="predicted",
        world_size=run.recording.world_size,
        elapsed=run.elapsed,
        messages=messages,
        spans=_spans(run),
        links=links,
        nodes=list(cluster.graph),
        hosts=list(cluster.hosts),
        facts={"time_min_s": run.elapsed, "time_max_s": run.elapsed},
        engine="compiled",
        method=METHOD,
        failed=failed,
        unfinished=find_unfinished(run),
    )


def _messages_and_links(run: ReplayedRun) -> tuple[Messages, list[TracedLink]]:
    """Return the messages that arrived, in the order of a Trace, and each link with the bytes that crossed it."""
    made, cluster = run.messages, run.cluster
    shown: Bools = made.crosses | (not run.carrier.messages_cross and not run.carrier.collectives_cross)
    pairs, route = number_routes(made, shown, cluster.world_size)
    routes = find_routes(cluster, run.carrier.transport, pairs)
    known = pair_routes(cluster, pairs, routes)
    with_none = MessageRoutes(np.append(0, known.first), known.node, known.names)
    begun = np.isfinite(run.message_begin)
    nbytes = np.bincount(route[begun], made.nbytes[begun], len(pairs.src) + 1)[1:]
    carried = np.bincount(routes.hop_link, np.repeat(nbytes, np.diff(routes.first_hop)), len(cluster.graph.edges))
    links = trace_links(cluster, run.carrier.transport, carried.tolist(), run.elapsed, run.faults)
    arrived = np.flatnonzero(np.isfinite(run.message_end))
    columns = {name: getattr(made, name)[arrived] for name in NAMES}
    messages = Messages(
        with_none,
        nbytes=made.nbytes[arrived].astype(np.int64),
        end=run.message_end[arrived],
        route=route[arrived],
        src_posted=run.started[made.source[arrived]],
        dst_posted=run.started[made.sink[arrived]],
        **columns,
    )
    return messages.sorted(), links


def _spans(run: ReplayedRun) -> Spans:
    """Return the compute spans. Each has the name of the recorded span around it, or ``reduce`` for a reduction."""
    work = run.planned.work
    end = run.work_end
    indices = np.flatnonzero(np.isfinite(end) & (work.rank != NO_RANK))
    name_of_mark, marks = _marks_at(run.recording, work.entry[indices], work.number[indices])
    of_program = work.channel[indices] == PROGRAM
    names = list(dict.fromkeys([REDUCE, *(mark.name for mark in marks)]))
    number = np.array([names.index(mark.name) for mark in marks], np.int64)
    step = np.array([mark.step for mark in marks], np.int64)
    begin = np.where(of_program, run.started[work.stage[indices]], end[indices] - work.seconds[indices])
    return Spans(
        tuple(names),
        rank=work.rank[indices],
        name=np.where(of_program, number[name_of_mark], 0),
        step=np.where(of_program, step[name_of_mark], work.step[indices]),
        begin=begin,
        end=end[indices],
        channel=np.where(of_program | (work.channel[indices] == DIVISION), 0, work.channel[indices]),
        collective=np.where(of_program, step[name_of_mark], work.number[indices]),
    ).sorted()


def _marks_at(recording: Recording, entry: Ints, stream: Ints) -> tuple[Ints, tuple[Mark, ...]]:
    """Return the index of the innermost mark (a named span) around the computing before each entry, and all marks."""
    entries, marks = recording.entries, (*recording.marks, COMPUTE)
    changes, opened = [-1], [len(marks) - 1]
    marks_at = np.flatnonzero((entries.did == Did.BEGIN) | (entries.did == Did.END))
    stack: list[int] = []
    before = -1
    for at in marks_at.tolist():
        of = int(entries.stream[at])
        if of != before:
            stack, before = [], of
            changes.append(int(np.searchsorted(entries.stream, of)) + of)
            opened.append(len(marks) - 1)
        mark = int(entries.number[at])
        if entries.did[at] == Did.BEGIN:
            stack.append(mark)
        elif mark in stack:
            del stack[len(stack) - 1 - stack[::-1].index(mark) :]
        changes.append(at + 1 + of)
        opened.append(stack[-1] if stack else len(marks) - 1)
    place = np.searchsorted(changes, entry + stream, side="right") - 1
    return np.array(opened, np.int64)[np.maximum(place, 0)], marks
