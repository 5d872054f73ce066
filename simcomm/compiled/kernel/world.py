"""Everything a run of the event engine knows, as arrays of records: what is under way, and how far it has come."""

from typing import Any, NamedTuple

import numpy as np

from simcomm.compiled.kernel.calendar import Calendar, new_calendar
from simcomm.compiled.kernel.heap import new_heap
from simcomm.compiled.plan import Plan
from simcomm.compiled.routes import MOST, Floats, Ints, Records, Wires

AGENT = np.dtype(
    [
        ("finished", "f8"),  # when its last stage was complete; infinite before
        ("computing", "i4"),  # the stage whose computing it is at
        ("ready", "i4"),  # a stack of stages to start, whoever's they are
        ("failed", "i4"),  # whether it came to the time at which it fails
    ],
    align=True,
)
FLOW = np.dtype(
    [
        ("target", "f8"),  # what its group's clock shows when it is through
        ("until", "f8"),  # when it is through, if it shares no link; -1 otherwise
        ("message", "i4"), ("route", "i4"),
        ("hop", "i4"),  # of its route, whose link's group it is in; -1 in none
        ("child", "i4"), ("sibling", "i4"), ("before", "i4"),  # the group's heap
        ("fair", "f8"), ("fair_hop", "i4"),  # while all is shared out afresh
        ("came", "f8"),  # where links serve one at a time: when it came; ``target`` is what is left while it waits
        ("free", "i4"), ("fresh", "i4"), ("through", "i4"),  # stacks of flows, whichever stand there
        ("due", "i4"),  # and of messages whose halves are both posted
    ],
    align=True,
)  # fmt: skip
CHAIN = np.dtype([("after", "i4"), ("before", "i4")], align=True)  # neighbours in a pair's list
LINK = np.dtype(
    [
        ("taken", "f8"),  # bytes/s of the flows on it that are in other links' groups, each counted up to ``most``
        ("most", "f8"),  # more than it ever has, and little enough for sums of it to be precise
        ("highest", "f8"),  # at least the fastest of those
        ("level", "f8"),  # bytes/s of each member of its own group
        ("clock", "f8"), ("since", "f8"),  # bytes that a member has moved since the group began, and when that was so
        ("alone", "f8"), ("shared", "f8"),  # bytes/s for one flow and for several
        ("crossing", "i4"),  # flows on it
        ("placed", "i4"),  # those of them that are in a group, of this link or another
        ("members", "i4"),  # those in its own
        ("root", "i4"),  # the member that is through first
        ("solo", "i4"),  # the flow that has the link for itself, or -1
        ("first_pair", "i4"), ("outs", "i4"), ("intos", "i4"),  # its pairs, and how many carry something either way
        ("stale", "i4"), ("is_stale", "i4"),  # a stack of links whose finish is to be told anew
        ("front", "i4"), ("back", "i4"),  # where it serves one at a time: its queue, as flow * most hops + hop
        ("spare", "f8"),  # while all is shared out afresh: bytes/s that nobody has, ...
        ("unserved", "i4"),  # ... and flows without a rate
    ],
    align=True,
)  # fmt: skip

FREE, FRESH, THROUGH, READY, STALE, DUE, STACKS = range(7)  # sizes of the stacks


class World(NamedTuple):
    """A run in progress."""

    stages: Records
    messages: Records
    ops: Ints
    cost: Floats
    extra: Floats
    fails_at: Floats
    turn: Ints
    routes: Records
    hops: Records
    hop_pair: Ints
    pairs: Records
    links: Records
    flows: Records
    chain: Records  # CHAIN [flows * most hops]
    agents: Records
    calendar: Calendar  # its nodes are the flows and then the agents
    dirty: Records  # a heap of links whose level may be wrong, the lowest first
    finish: Records  # a heap of links with a group, by when its first member is through
    sizes: Any  # int64 [STACKS]
    clock: Any  # float64 [2]: now, and since when it is now but for rounding
    begin: Floats  # [messages], or [0] when nobody asked
    end: Floats
    started: Floats  # [stages]: when each posted its messages; or [0]


def new_world(plan: Plan, wires: Wires, most_flows: int, messages: bool) -> World:
    """Time zero: every agent's first stage is about to start. ``most_flows`` can be under way at once.

    The plan and the pairs of the wires are part of the world from now on, until another is made of them.
    """
    plan.stages["waiting"][:-1] = np.diff(plan.stages["first_op"])
    plan.messages["posted"] = 0
    wires.pairs["carried"], wires.pairs["head"] = 0, -1
    most_hops = int(wires.routes["hops"].max(initial=1))
    counts = [len(plan.messages), len(plan.messages), len(plan.stages)]
    recorded = [np.full(count if messages else 0, np.nan) for count in counts]
    sizes = np.zeros(STACKS, np.int64)
    sizes[FREE], sizes[READY] = most_flows, np.count_nonzero(plan.first_stage >= 0)
    return World(
        plan.stages, plan.messages, plan.ops, plan.cost, plan.extra, plan.fails_at, plan.turn,
        wires.routes, wires.hops, wires.hop_pair, wires.pairs, _links(wires), _flows(most_flows),
        np.full((most_flows * most_hops, 2), -1, np.int32).view(CHAIN)[:, 0], _agents(plan.first_stage),
        new_calendar(most_flows + len(plan.first_stage)), new_heap(len(wires.alone)), new_heap(len(wires.alone)),
        sizes, np.zeros(2), *recorded,
    )  # fmt: skip


def _links(wires: Wires) -> Records:
    links = np.zeros(len(wires.alone), LINK)
    links["alone"], links["shared"], links["first_pair"] = wires.alone, wires.shared, wires.first_pair
    finite = [np.where(rate < MOST, rate, 0.0) for rate in (wires.alone, wires.shared)]
    links["most"] = 4 * np.where(np.maximum(*finite) > 0, np.maximum(*finite), MOST)
    links["root"] = links["solo"] = links["front"] = links["back"] = -1
    return links


def _flows(most_flows: int) -> Records:
    flows = np.zeros(most_flows, FLOW)
    flows["until"] = flows["hop"] = flows["child"] = flows["sibling"] = flows["before"] = -1
    flows["free"] = np.arange(most_flows)[::-1]
    return flows


def _agents(first_stage: Ints) -> Records:
    busy = np.flatnonzero(first_stage >= 0)
    agents = np.zeros(len(first_stage), AGENT)
    agents["finished"][busy] = np.inf
    agents["ready"][: len(busy)] = first_stage[busy]
    return agents
