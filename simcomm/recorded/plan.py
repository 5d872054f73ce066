"""The plan and the links of a replay as the kernel reads them, in trouble or without."""

from typing import NamedTuple

import numpy as np

from collectives.budget import check_fits
from collectives.records.columns import Bools, Floats, Ints
from simcomm.cluster.cluster import Cluster
from simcomm.compiled.kernel.arrays import NO_FLOATS, STAGE, UNLIMITED, LinkRecords, Plan
from simcomm.compiled.kernel.arrays import Ints as KernelInts
from simcomm.compiled.planning.engine_input import MOST_MESSAGES
from simcomm.compiled.planning.link_records import make_link_records
from simcomm.compiled.planning.routes import Pairs, Routes, find_routes
from simcomm.compiled.planning.schedule_plan import make_messages
from simcomm.model.trouble import Trouble
from simcomm.recorded.carriers import NetworkCarrier
from simcomm.recorded.layout import NO_RANK, Stages, Tasks
from simcomm.recorded.messages import ReplayedMessages

SIGNAL_BYTES = 1.0  # of which a route without links takes no time


class ReplayPlan(NamedTuple):
    """A plan with what its numbers stand for: signals come before messages."""

    plan: Plan
    links: LinkRecords
    routes: Routes
    pairs: Pairs  # of route r + 1; route 0 has neither links nor delay
    signals: int
    work: Tasks  # with the slowness of ranks in its seconds


def make_plan(stages: Stages, messages: ReplayedMessages, carrier: NetworkCarrier, trouble: Trouble) -> ReplayPlan:
    """Return the plan of a layout. Raise TooLarge for more messages than there is memory for."""
    source, sink = stages.signals()
    number = len(source) + len(messages.source)
    check_fits(number, MOST_MESSAGES, f"a recording of {number:,} messages and signals takes too much memory")
    pairs, route = number_routes(messages, messages.crosses, carrier.cluster.world_size)
    routes = _with_free_route(find_routes(carrier.resolved, carrier.transport, pairs))
    routes = _limited(_narrowed(carrier.resolved, routes, trouble), trouble)
    links = make_link_records(routes, np.zeros(len(routes.alone), np.bool_), number)
    work = slowed(stages.work(), trouble)
    plan = _assemble(
        stages,
        np.append(source, messages.source),
        np.append(sink, messages.sink),
        np.append(np.zeros(len(source), np.int64), route),
        np.append(np.full(len(source), SIGNAL_BYTES), messages.nbytes),
    )
    cost = np.bincount(work.stage, work.seconds, len(plan.stages) - 1).astype(np.float64)
    plan = plan._replace(cost=cost, extra=_extra(messages, len(source), trouble))
    if carrier.resolved.sharing == "fifo":
        plan = plan._replace(arrival_order=_arrival_order(messages, len(source)))
    if trouble.fails_ranks:
        ranks = stages.ranks()
        fails_at = np.array([trouble.fails_at(rank) for rank in range(carrier.cluster.world_size)] + [np.inf])
        plan = plan._replace(fails_at=fails_at[ranks])
    return ReplayPlan(plan, links, routes, pairs, len(source), work)


def slowed(work: Tasks, trouble: Trouble) -> Tasks:
    """Return what computes with the slowness of its ranks; what belongs to no rank keeps its time."""
    if not trouble.ranks and trouble.compute is None:
        return work
    slower = trouble.slowdown(work.number, work.rank, work.channel, work.step)
    return work._replace(seconds=work.seconds * np.where(work.rank == NO_RANK, 1.0, slower))


def number_routes(messages: ReplayedMessages, which: Bools, world_size: int) -> tuple[Pairs, Ints]:
    """Return the pairs of ranks of some messages, and the route of each message: 0 of others."""
    code = messages.src * world_size + messages.dst
    distinct, pair = np.unique(code[which], return_inverse=True)
    route = np.zeros(len(code), np.int64)
    route[which] = pair + 1
    return Pairs((distinct // world_size).astype(np.int32), (distinct % world_size).astype(np.int32)), route


def _with_free_route(routes: Routes) -> Routes:
    """Return the routes with one before them that has neither links nor delay."""
    first, delay = np.append(np.int32(0), routes.first_hop), np.append(0.0, routes.delay)
    return routes._replace(first_hop=first.astype(np.int32), delay=delay)


def _limited(routes: Routes, trouble: Trouble) -> Routes:
    """Return the routes with links that are finite where trouble changes them, as shares of infinity are none."""
    if not trouble.links_change:
        return routes
    alone, shared = (np.minimum(rate, UNLIMITED) for rate in (routes.alone, routes.shared))
    return routes._replace(alone=alone, shared=shared)


def _narrowed(cluster: Cluster, routes: Routes, trouble: Trouble) -> Routes:
    """Return the routes with links that have only a share of their bandwidth all the time."""
    if not trouble.links or trouble.links_change:
        return routes
    shares = trouble.link_shares()
    left = np.array([shares.get(edge, 1.0) for edge in cluster.graph.edges])
    return routes._replace(alone=routes.alone * left, shared=routes.shared * left)


def _assemble(stages: Stages, source: Ints, sink: Ints, route: Ints, nbytes: Floats) -> Plan:
    """Return the plan of messages between stages."""
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
    return Plan(records, messages, ops, NO_FLOATS, NO_FLOATS, first_stage)


def _extra(messages: ReplayedMessages, signals: int, trouble: Trouble) -> Floats:
    """Return the seconds of messages on top of their routes; [0] where there are none."""
    extra = messages.seconds
    if trouble.messages is not None:
        names = (messages.collective, messages.src, messages.dst, messages.channel, messages.step, messages.chunk)
        extra = extra + trouble.delay(*names)
    return np.append(np.zeros(signals), extra) if extra.any() else NO_FLOATS


def _arrival_order(messages: ReplayedMessages, signals: int) -> KernelInts:
    """Return who of the messages that come at one instant is first: by collective, ranks, channel, step and chunk."""
    names = (messages.collective, messages.src, messages.dst, messages.channel, messages.step, messages.chunk)
    order = np.lexsort(names[::-1])
    places = np.empty(signals + len(order), np.int32)
    places[:signals] = np.arange(signals)
    places[signals + order] = np.arange(signals, signals + len(order))
    return places
