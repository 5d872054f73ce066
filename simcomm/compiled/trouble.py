"""What trouble makes of a plan: messages that are late, computing that takes longer, ranks that fail, links in turn."""

from collections.abc import Iterator
from typing import NamedTuple

import networkx as nx
import numpy as np

from collectives.step import Kind
from simcomm.compiled.demand import stages_of
from simcomm.compiled.engine_input import EngineInput
from simcomm.compiled.plan import Plan, begun_at
from simcomm.compiled.routes import MOST, Floats, Ints, Records, Wires, wired


def disturbed(inputs: EngineInput) -> Plan:
    """The inputs's plan in its trouble. It must be in full where trouble touches ranks, or links serve in turn."""
    plan, trouble, channels = inputs.demand.plan, inputs.trouble, inputs.demand.channels
    if inputs.in_turn:
        plan = plan._replace(turn=_turns(inputs))
    if trouble.messages is not None:
        plan = plan._replace(extra=trouble.delay(inputs.turn, *inputs.names))
    if len(plan.cost):
        plan = plan._replace(cost=plan.cost * slowdowns(inputs))
    if trouble.fails_ranks:
        fails_at = [trouble.fails_at(rank) for rank in range(inputs.schedule.world_size)]
        plan = plan._replace(fails_at=np.repeat(fails_at, channels))
    if inputs.starts is not None:
        plan = begun_at(plan, np.repeat(inputs.starts, channels))
    return plan


def slowdowns(inputs: EngineInput) -> Floats:
    """How many times as long each stage computes; 1 where nothing is wrong."""
    trouble, channels = inputs.trouble, inputs.demand.channels
    if not trouble.ranks and trouble.compute is None:
        return np.ones(1)
    columns = inputs.schedule.table().columns
    rank, channel = np.divmod(inputs.demand.plan.stages["agent"][:-1], channels)
    return trouble.slowdown(inputs.turn, rank, channel, columns.step[stages_of(columns)[1]])


def _turns(inputs: EngineInput) -> Ints:
    """Who of the messages that come at one instant is first, by src, dst, channel, step and chunk."""
    order = np.lexsort(inputs.names[::-1])
    turns = np.empty(len(order), np.int32)
    turns[order] = np.arange(len(order), dtype=np.int32)
    return turns


def fail_late(inputs: EngineInput, agents: Records) -> None:
    """Agents that failed before the last of their computing began have failed.

    The engine takes all computing of a stage at once, so it sees a failure in between only when the next stage begins.
    """
    channels = inputs.demand.channels
    for one in (one for one in inputs.trouble.ranks if one.fails_at < np.inf):
        for agent in range(one.rank * channels, (one.rank + 1) * channels):
            finished = float(agents["finished"][agent])
            if np.isfinite(finished) and finished - _last_computing(inputs, agent) >= one.fails_at:
                agents["finished"][agent], agents["failed"][agent] = np.inf, 1


def _last_computing(inputs: EngineInput, agent: int) -> float:
    """Seconds of the agent's last step's last reduction or copy; infinite where there is none."""
    columns = inputs.schedule.table().columns
    stage, _ = stages_of(columns)
    rank, channel = divmod(agent, inputs.demand.channels)
    mine = np.flatnonzero((columns.rank == rank) & (columns.channel == channel))
    if len(mine) == 0:
        return np.inf
    last = mine[stage[mine] == stage[mine[-1]]]
    nbytes = inputs.sizes.nbytes(columns.into[last], columns.count[last])
    kind = columns.kind[last]
    computing = np.flatnonzero((kind >= Kind.COPY) | ((kind == Kind.RECV_REDUCE) & (nbytes > 0)))
    if len(computing) == 0:
        return np.inf
    local = computing[kind[computing] >= Kind.COPY]  # which come after all messages
    which = (local if len(local) else computing)[-1]
    slower = inputs.trouble.slowdown(inputs.turn, rank, channel, columns.step[last[0]])
    return float(inputs.transport.gamma * nbytes[which] * slower)


class LinkChange(NamedTuple):
    """From ``time`` on the link has so many bytes/s for one message and for several; these routes cross it."""

    time: float
    link: int
    alone: float
    shared: float
    over: Ints


def wires_of(inputs: EngineInput) -> Wires:
    """The network as the engine reads it, without links that hold nobody back whatever happens to them."""
    routes = inputs.routes
    private = np.zeros_like(inputs.private) if inputs.trouble.links_change else inputs.private
    if inputs.trouble.links_change or inputs.in_turn:
        finite = [np.minimum(rate, MOST) for rate in (routes.alone, routes.shared)]
        routes = routes._replace(alone=finite[0], shared=finite[1])
    return wired(routes, private)


def link_changes(inputs: EngineInput, wires: Wires) -> Iterator[LinkChange]:
    """Every change of a link's bandwidth, in order of time."""
    graph: nx.DiGraph[str] = inputs.cluster.graph
    number = {edge: link for link, edge in enumerate(graph.edges)}
    route = np.repeat(np.arange(len(wires.routes), dtype=np.int32), wires.routes["hops"])
    over: dict[int, Ints] = {}
    for change in inputs.trouble.changes():
        link = number[change.edge]
        if link not in over:
            over[link] = np.unique(route[wires.hops["link"] == link])
        alone, shared = (_left(float(rate[link]), change.share) for rate in (wires.alone, wires.shared))
        yield LinkChange(change.time, link, alone, shared, over[link])


def _left(rate: float, share: float) -> float:
    return rate if rate >= MOST and share > 0 else rate * share
