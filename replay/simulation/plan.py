"""Make the kernel's input for a replay: the plan and the links, with the effects of faults."""

from typing import NamedTuple

import numpy as np

from collectives.budget import Gigabyte, check_fits
from collectives.records.columns import Bools, Floats, Ints
from replay.recording import Recording
from replay.simulation.calls import NEVER, ReplayedCalls, Segments
from replay.simulation.carriers import CallClass, NetworkCarrier
from replay.simulation.layout import NO_RANK, ReplayLayout, Stages, Tasks
from simcomm.cluster.cluster import Cluster
from simcomm.compiled.kernel.arrays import NO_FLOATS, STAGE, UNLIMITED, LinkRecords, Plan
from simcomm.compiled.planning.routes import Routes, find_routes, make_link_records
from simcomm.compiled.planning.schedule_plan import Pairs, make_messages
from simcomm.model.faults import Faults


class ReplayedMessages(NamedTuple):
    """Messages as arrays. If a message has no send or no receive, the missing rank is the peer of the other call."""

    source: Ints  # the sending stage, or a stage that never begins
    sink: Ints
    src: Ints
    dst: Ints
    nbytes: Floats
    seconds: Floats  # seconds in addition to the time on links
    crosses: Bools  # whether the message crosses links
    collective: Ints  # key of the message's collective, or of the message
    channel: Ints
    step: Ints
    dst_step: Ints
    chunk: Ints
    count: Ints  # type: ignore[assignment]
    into: Ints
    reduces: Ints


def find_messages(
    recording: Recording,
    segments: Segments,
    calls: ReplayedCalls,
    laid: tuple[ReplayLayout, list[CallClass]],
    carrier: NetworkCarrier,
) -> ReplayedMessages:
    """Return all messages of a replay: first the recorded sends and receives, then the messages of collectives."""
    layout, classes = laid
    parts = [_of_programs(recording, segments, calls, layout, carrier)]
    for call_class, bases in zip(classes, layout.bases, strict=True):
        if call_class.template is not None and len(call_class.template.messages.source):
            parts.append(_of_collectives(call_class, bases, calls, carrier.collectives_cross))
    return ReplayedMessages(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _of_collectives(call_class: CallClass, bases: Ints, calls: ReplayedCalls, crosses: bool) -> ReplayedMessages:
    """Return the messages of all collectives in a call class, one collective after the other."""
    template, number = call_class.template, len(call_class.collectives)
    assert template is not None
    messages, tables = template.messages, bases.reshape(number, template.ranks, template.channels)

    def stage(of_template: Ints) -> Ints:
        member, channel = np.divmod(template.agent[of_template], template.channels)
        return (tables[:, member, channel] + template.place[of_template]).reshape(-1)

    ranks, shape = calls.rank[call_class.parts], (number, len(messages.source))
    names = {name: np.tile(getattr(messages, name), number) for name in messages._fields[4:]}
    return ReplayedMessages(
        source=stage(messages.source),
        sink=stage(messages.sink),
        src=ranks[:, messages.src].reshape(-1),
        dst=ranks[:, messages.dst].reshape(-1),
        crosses=np.full(number * len(messages.source), crosses),
        collective=np.broadcast_to(calls.key[call_class.collectives][:, None], shape).reshape(-1),
        **names,
    )


def _of_programs(
    recording: Recording, segments: Segments, calls: ReplayedCalls, layout: ReplayLayout, carrier: NetworkCarrier
) -> ReplayedMessages:
    """Return the messages of recorded sends and receives. Messages of collectives are not included."""
    send, recv, made = calls.send, calls.recv, recording.calls
    halves = np.where(send >= 0, send, recv)
    sends = send >= 0
    src = np.where(sends, made.rank[halves], made.peer[halves])
    dst = np.where(sends, made.peer[halves], made.rank[halves])
    stages = []
    for half in (send, recv):
        is_posted = (half >= 0) & (calls.posted[half] >= 0)
        stages.append(np.where(is_posted, layout.half[half], layout.never))
    nbytes = made.nbytes[halves].astype(np.float64)
    exchanges, computed = _circumstances(recording, segments, calls)
    seconds = carrier.message_seconds(np.stack([src, dst], axis=1), nbytes, exchanges, computed)
    zeros = np.zeros(len(halves), np.int64)
    return ReplayedMessages(
        source=stages[0],
        sink=stages[1],
        src=src,
        dst=dst,
        nbytes=nbytes,
        seconds=seconds,
        crosses=np.full(len(halves), carrier.messages_cross),
        collective=made.key[halves],
        channel=zeros,
        step=zeros,
        dst_step=zeros,
        chunk=zeros,
        count=zeros + 1,
        into=zeros,
        reduces=zeros.astype(np.bool_),
    )


def _circumstances(recording: Recording, segments: Segments, calls: ReplayedCalls) -> tuple[Bools, Floats]:
    """Return two arrays: whether each message is part of a two-way exchange, and the longer compute time before it."""
    both = np.zeros((2, len(segments) + 1), np.bool_)
    for row, half in zip(both, (calls.send, calls.recv), strict=True):
        row[calls.posted[half[half >= 0]]] = True
    both[:, NEVER] = False
    exchanges, computed = both[0] & both[1], np.append(recording.entries.seconds[segments.first], 0.0)
    where = [np.where(half >= 0, calls.posted[half], NEVER) for half in (calls.send, calls.recv)]
    return exchanges[where[0]] | exchanges[where[1]], np.maximum(computed[where[0]], computed[where[1]])


SIGNAL_BYTES = 1.0  # take no time on a route without links


class ReplayPlan(NamedTuple):
    """The input of the kernel, ``plan`` and ``links``, with the tables that are needed to read its result.

    The first ``signals`` messages of the plan are signals.
    """

    plan: Plan
    links: LinkRecords
    routes: Routes
    pairs: Pairs  # ranks of route r + 1; route 0 has no links and no delay
    signals: int
    work: Tasks  # with the slowdown of straggler ranks


def make_plan(stages: Stages, messages: ReplayedMessages, carrier: NetworkCarrier, faults: Faults) -> ReplayPlan:
    """Return the kernel's input for a layout. Raise TooLarge if the messages do not fit into memory."""
    source, sink = stages.signals()
    number = len(source) + len(messages.source)
    check_fits(number, Gigabyte.MESSAGES, f"a recording of {number:,} messages and signals takes too much memory")
    pairs, route = number_routes(messages, messages.crosses, carrier.cluster.world_size)
    routes = _with_free_route(find_routes(carrier.resolved, carrier.transport, pairs))
    routes = _limited(_narrowed(carrier.resolved, routes, faults), faults)
    links = make_link_records(routes, np.zeros(len(routes.alone), np.bool_), number)
    work = slowed(stages.work(), faults)
    plan = _assemble(
        stages,
        np.append(source, messages.source),
        np.append(sink, messages.sink),
        np.append(np.zeros(len(source), np.int64), route),
        np.append(np.full(len(source), SIGNAL_BYTES), messages.nbytes),
    )
    cost = np.bincount(work.stage, work.seconds, len(plan.stages) - 1).astype(np.float64)
    plan = plan._replace(cost=cost, extra=_extra(messages, len(source), faults))
    if faults.fails_ranks:
        ranks = stages.ranks()
        fails_at = np.array([faults.fails_at(rank) for rank in range(carrier.cluster.world_size)] + [np.inf])
        plan = plan._replace(fails_at=fails_at[ranks])
    return ReplayPlan(plan, links, routes, pairs, len(source), work)


def slowed(work: Tasks, faults: Faults) -> Tasks:
    """Return the tasks with longer compute times on straggler ranks. Tasks without a rank are unchanged."""
    if not faults.ranks and faults.compute is None:
        return work
    slower = faults.slowdown(work.number, work.rank, work.channel, work.step)
    return work._replace(seconds=work.seconds * np.where(work.rank == NO_RANK, 1.0, slower))


def number_routes(messages: ReplayedMessages, which: Bools, world_size: int) -> tuple[Pairs, Ints]:
    """Return the rank pair of each route, and each message's route number, or 0 if ``which`` is False for it."""
    code = messages.src * world_size + messages.dst
    distinct, pair = np.unique(code[which], return_inverse=True)
    route = np.zeros(len(code), np.int64)
    route[which] = pair + 1
    return Pairs((distinct // world_size).astype(np.int32), (distinct % world_size).astype(np.int32)), route


def _with_free_route(routes: Routes) -> Routes:
    """Return the routes, preceded by a route 0 with no links and no delay."""
    first, delay = np.append(np.int32(0), routes.first_hop), np.append(0.0, routes.delay)
    return routes._replace(first_hop=first.astype(np.int32), delay=delay)


def _limited(routes: Routes, faults: Faults) -> Routes:
    """Return routes with finite rates if faults change links, because the kernel cannot share an infinite rate."""
    if not faults.changes_links:
        return routes
    alone, shared = (np.minimum(rate, UNLIMITED) for rate in (routes.alone, routes.shared))
    return routes._replace(alone=alone, shared=shared)


def _narrowed(cluster: Cluster, routes: Routes, faults: Faults) -> Routes:
    """Return routes with the reduced bandwidth of permanently degraded links."""
    if not faults.links or faults.changes_links:
        return routes
    shares = faults.link_shares()
    left = np.array([shares.get(edge, 1.0) for edge in cluster.graph.edges])
    return routes._replace(alone=routes.alone * left, shared=routes.shared * left)


def _assemble(stages: Stages, source: Ints, sink: Ints, route: Ints, nbytes: Floats) -> Plan:
    agent, number = stages.agent(), stages.number
    records = np.zeros(number + 1, STAGE)
    same = np.append(agent[1:] == agent[:-1], False) if number else np.zeros(0, np.bool_)
    records["agent"][:-1] = agent
    records["following"] = -1
    records["following"][:-1][same] = np.flatnonzero(same) + 1
    agents, begins = np.unique(agent, return_index=True)
    first_stage = np.full(len(stages.ranks()), -1, np.int32)
    first_stage[agents] = begins
    ends = np.concatenate([source, sink])
    order = np.argsort(ends.astype(np.int32), kind="stable")
    ops = (order % max(1, len(source))).astype(np.int32)
    records["first_op"][1:] = np.cumsum(np.bincount(ends, minlength=number))
    from_, to, by = (column.astype(np.int32) for column in (source, sink, route))
    messages = make_messages(from_, to, by, nbytes)
    return Plan(records, messages, ops, NO_FLOATS, first_stage)


def _extra(messages: ReplayedMessages, signals: int, faults: Faults) -> Floats:
    """Return the seconds that each message takes in addition to its route. Return an empty array if all are 0."""
    extra = messages.seconds
    if faults.messages is not None:
        names = (messages.collective, messages.src, messages.dst, messages.channel, messages.step, messages.chunk)
        extra = extra + faults.delay(*names)
    return np.append(np.zeros(signals), extra) if extra.any() else NO_FLOATS
