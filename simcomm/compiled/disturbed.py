"""What trouble makes of a plan: messages that are late, computing that takes longer, ranks that fail, links in turn."""

from collections.abc import Iterator
from typing import NamedTuple

import networkx as nx
import numpy as np

from collectives.step import Kind
from collectives.tracing import as_table
from simcomm.compiled.plan import Plan, begun_at
from simcomm.compiled.plans import stages_of
from simcomm.compiled.question import Question
from simcomm.compiled.wires import MOST, Floats, Ints, Records, Wires, wired


def disturbed(question: Question) -> Plan:
    """The question's plan in its trouble. It must be in full where trouble touches ranks, or links serve in turn."""
    plan, trouble, channels = question.demand.plan, question.trouble, question.demand.channels
    if question.in_turn:
        plan = plan._replace(turn=_turns(question))
    if trouble.messages is not None:
        plan = plan._replace(extra=trouble.delay(question.turn, *question.names))
    if len(plan.cost):
        plan = plan._replace(cost=plan.cost * slowdowns(question))
    if trouble.fails:
        fails_at = [trouble.fails_at(rank) for rank in range(question.program.world_size)]
        plan = plan._replace(fails_at=np.repeat(fails_at, channels))
    if question.starts is not None:
        plan = begun_at(plan, np.repeat(question.starts, channels))
    return plan


def slowdowns(question: Question) -> Floats:
    """How many times as long each stage computes; 1 where nothing is wrong."""
    trouble, channels = question.trouble, question.demand.channels
    if not trouble.ranks and trouble.compute is None:
        return np.ones(1)
    columns = as_table(question.program).columns
    rank, channel = np.divmod(question.demand.plan.stages["agent"][:-1], channels)
    return trouble.slowdown(question.turn, rank, channel, columns.step[stages_of(columns)[1]])


def _turns(question: Question) -> Ints:
    """Who of the messages that come at one instant is first, by src, dst, channel, step and chunk."""
    order = np.lexsort(question.names[::-1])
    turns = np.empty(len(order), np.int32)
    turns[order] = np.arange(len(order), dtype=np.int32)
    return turns


def fail_late(question: Question, agents: Records) -> None:
    """Agents that failed before the last of their computing began have failed.

    The engine takes all computing of a stage at once, so it sees a failure in between only when the next stage begins.
    """
    channels = question.demand.channels
    for one in (one for one in question.trouble.ranks if one.fails_at < np.inf):
        for agent in range(one.rank * channels, (one.rank + 1) * channels):
            finished = float(agents["finished"][agent])
            if np.isfinite(finished) and finished - _last_computing(question, agent) >= one.fails_at:
                agents["finished"][agent], agents["failed"][agent] = np.inf, 1


def _last_computing(question: Question, agent: int) -> float:
    """Seconds of the agent's last step's last reduction or copy; infinite where there is none."""
    columns = as_table(question.program).columns
    stage, _ = stages_of(columns)
    rank, channel = divmod(agent, question.demand.channels)
    mine = np.flatnonzero((columns.rank == rank) & (columns.channel == channel))
    if len(mine) == 0:
        return np.inf
    last = mine[stage[mine] == stage[mine[-1]]]
    nbytes = question.sizes.nbytes(columns.into[last], columns.count[last])
    kind = columns.kind[last]
    computing = np.flatnonzero((kind >= Kind.COPY) | ((kind == Kind.RECV_REDUCE) & (nbytes > 0)))
    if len(computing) == 0:
        return np.inf
    local = computing[kind[computing] >= Kind.COPY]  # which come after all messages
    which = (local if len(local) else computing)[-1]
    slower = question.trouble.slowdown(question.turn, rank, channel, columns.step[last[0]])
    return float(question.transport.gamma * nbytes[which] * slower)


class LinkChange(NamedTuple):
    """From ``time`` on the link has so many bytes/s for one message and for several; these routes cross it."""

    time: float
    link: int
    alone: float
    shared: float
    over: Ints


def wires_of(question: Question) -> Wires:
    """The network as the engine reads it, without links that hold nobody back whatever happens to them."""
    routes = question.routes
    private = np.zeros_like(question.private) if question.trouble.links_change else question.private
    if question.trouble.links_change or question.in_turn:
        finite = [np.minimum(rate, MOST) for rate in (routes.alone, routes.shared)]
        routes = routes._replace(alone=finite[0], shared=finite[1])
    return wired(routes, private)


def link_changes(question: Question, wires: Wires) -> Iterator[LinkChange]:
    """Every change of a link's bandwidth, in order of time."""
    graph: nx.DiGraph[str] = question.cluster.graph
    number = {edge: link for link, edge in enumerate(graph.edges)}
    route = np.repeat(np.arange(len(wires.routes), dtype=np.int32), wires.routes["hops"])
    over: dict[int, Ints] = {}
    for change in question.trouble.changes():
        link = number[change.edge]
        if link not in over:
            over[link] = np.unique(route[wires.hops["link"] == link])
        alone, shared = (_left(float(rate[link]), change.share) for rate in (wires.alone, wires.shared))
        yield LinkChange(change.time, link, alone, shared, over[link])


def _left(rate: float, share: float) -> float:
    return rate if rate >= MOST and share > 0 else rate * share
