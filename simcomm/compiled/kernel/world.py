"""Define the state of a simulation as arrays of records.

*Flows* are messages in flight. A simulation allocates no memory, so its lists and stacks are fields of other records.
For example, field ``fresh`` of the first records of ``flows`` is a stack. ``World.sizes`` has the length of each stack.
"""

from typing import Any, NamedTuple

import numpy as np

from simcomm.compiled.kernel.arrays import UNLIMITED, Floats, Ints, LinkRecords, Plan, Records
from simcomm.compiled.kernel.heap import Calendar, new_calendar, new_heap
from simcomm.jit import inline

AGENT = np.dtype(
    [
        ("finished", "f8"),  # when its last stage ended, in seconds; infinity before
        ("computing", "i4"),  # the stage that it computes
        ("ready", "i4"),  # stack of stages to start, of any agents
        ("failed", "i4"),  # whether it has failed
    ],
    align=True,
)
FLOW = np.dtype(
    [
        ("target", "f8"),  # its group's clock when it ends
        ("until", "f8"),  # when it ends, in seconds, if it shares no link; else -1
        ("message", "i4"), ("route", "i4"),
        ("hop", "i4"),  # the hop whose link's group it is in; -1: none
        ("child", "i4"), ("sibling", "i4"), ("before", "i4"),  # in the group's pairing heap
        ("fair", "f8"), ("fair_hop", "i4"),  # during progressive filling: its rate, and the hop that limits it
        ("free", "i4"), ("fresh", "i4"), ("through", "i4"),  # stacks of flows: unused, just arrived, just ended
        ("due", "i4"),  # stack of messages whose halves are both posted
    ],
    align=True,
)  # fmt: skip
CHAIN = np.dtype([("after", "i4"), ("before", "i4")], align=True)  # neighbors in a link pair's list
LINK = np.dtype(
    [
        ("taken", "f8"),  # bytes/s of flows on it in other links' groups, each counted up to ``most``
        ("most", "f8"),  # bytes/s that exceed its capacity, but keep sums precise
        ("highest", "f8"),  # upper bound of the rate of the fastest of these flows
        ("level", "f8"),  # bytes/s of each member of its group
        ("clock", "f8"), ("since", "f8"),  # bytes moved by each member since the group began; time of this value
        ("alone", "f8"), ("shared", "f8"),  # bytes/s for one flow and for several
        ("crossing", "i4"),  # flows on it
        ("placed", "i4"),  # flows on it that are in a group, of any link
        ("members", "i4"),  # members of its group
        ("root", "i4"),  # the member that ends first
        ("solo", "i4"),  # the flow that is alone on it, or -1
        ("first_link_pair", "i4"),  # of the link pairs from it
        ("outs", "i4"), ("intos", "i4"),  # number of link pairs from it and to it that carry flows
        ("stale", "i4"), ("is_stale", "i4"),  # stack of links with an outdated ``finish`` entry; whether this one is
        ("spare", "f8"), ("unserved", "i4"),  # during progressive filling: bytes/s left, and flows without a rate
    ],
    align=True,
)  # fmt: skip

FREE, FRESH, THROUGH, READY, STALE, DUE, STACKS = range(7)  # indices of World.sizes


class World(NamedTuple):
    stages: Records
    messages: Records
    ops: Ints
    cost: Floats
    extra: Floats
    fails_at: Floats
    routes: Records
    hop_link: Ints
    hop_link_pair: Ints
    link_pairs: Records
    links: Records
    flows: Records
    chain: Records  # CHAIN [flows * most hops]
    agents: Records
    calendar: Calendar  # nodes are the flows and then the agents
    dirty: Records  # heap of links whose level may be wrong, lowest level first
    finish: Records  # heap of links with a group, by the end of the first member
    sizes: Any  # int64 [STACKS]
    clock: Any  # float64 [1]: now
    begin: Floats  # [messages], or [0] unless requested
    end: Floats  # [messages], or [0] unless requested
    started: Floats  # [stages]: when each stage posted its messages, in seconds; or [0]


def new_world(plan: Plan, network: LinkRecords, messages: bool) -> World:
    """Return the state at time zero, with every agent's first stage ready to start.

    Set ``messages`` to record the times of each message. The plan's records and the network's link pairs are not
    copied, so each of them can serve only one simulation at a time.
    """
    plan.stages["waiting"][:-1] = np.diff(plan.stages["first_op"])
    plan.messages["posted"] = 0
    network.link_pairs["carried"], network.link_pairs["head"] = 0, -1
    most_flows = max(1, int(plan.most_at_once("source").sum()))  # sent at once
    most_hops, links = int(network.routes["hops"].max(initial=1)), len(network.alone)
    counts = [len(plan.messages), len(plan.messages), len(plan.stages)]
    begin, end, started = (np.full(count if messages else 0, np.nan) for count in counts)
    sizes = np.zeros(STACKS, np.int64)
    sizes[FREE], sizes[READY] = most_flows, np.count_nonzero(plan.first_stage >= 0)
    inputs = {**plan._asdict(), **network._asdict()}
    return World(
        **{name: inputs[name] for name in World._fields if name in inputs},
        links=_new_links(network),
        flows=_new_flows(most_flows),
        chain=np.full((most_flows * most_hops, 2), -1, np.int32).view(CHAIN)[:, 0],
        agents=_new_agents(plan.first_stage),
        calendar=new_calendar(most_flows + len(plan.first_stage)),
        dirty=new_heap(links),
        finish=new_heap(links),
        sizes=sizes,
        clock=np.zeros(1),
        begin=begin,
        end=end,
        started=started,
    )


def _new_links(network: LinkRecords) -> Records:
    links = np.zeros(len(network.alone), LINK)
    links["alone"], links["shared"], links["first_link_pair"] = network.alone, network.shared, network.first_link_pair
    finite = [np.where(rate < UNLIMITED, rate, 0.0) for rate in (network.alone, network.shared)]
    links["most"] = 4 * np.where(np.maximum(*finite) > 0, np.maximum(*finite), UNLIMITED)
    links["root"] = links["solo"] = -1
    return links


def _new_flows(most_flows: int) -> Records:
    flows = np.zeros(most_flows, FLOW)
    flows["until"] = flows["hop"] = flows["child"] = flows["sibling"] = flows["before"] = -1
    flows["free"] = np.arange(most_flows)[::-1]
    return flows


def _new_agents(first_stage: Ints) -> Records:
    busy = np.flatnonzero(first_stage >= 0)
    agents = np.zeros(len(first_stage), AGENT)
    agents["finished"][busy] = np.inf
    agents["ready"][: len(busy)] = first_stage[busy]
    return agents


@inline
def capacity(w: World, link: int) -> float:
    """Return the present bandwidth of a link in bytes/s, which depends on whether several flows cross it."""
    return w.links[link].shared if w.links[link].crossing > 1 else w.links[link].alone
