"""Progressive filling over all flows at once, which needs no earlier state: for when corrections take too long."""

import numpy as np

from simcomm.compiled.kernel.arrays import NOBODY
from simcomm.compiled.kernel.flow_groups import join_group, leave_group
from simcomm.compiled.kernel.heap import drop
from simcomm.compiled.kernel.world import World, capacity
from simcomm.jit import inline, separate

NOT_GROUPED, WITHOUT_RATE = -1, -2  # in FLOW.fair_hop, in place of a hop


@separate
def fill_progressively(w: World, now: float) -> None:
    """Make all levels fair."""
    remaining = _dissolve_groups(w, now)
    while remaining > 0:
        tightest, share = NOBODY, np.inf
        for link in range(len(w.links)):
            if w.links[link].unserved > 0 and (
                tightest < 0 or max(0.0, w.links[link].spare) / w.links[link].unserved < share
            ):
                tightest, share = link, max(0.0, w.links[link].spare) / w.links[link].unserved
        remaining -= _freeze_flows(w, tightest, share)
    for flow in range(len(w.flows)):
        if w.flows[flow].fair_hop >= 0:
            link = w.hops[w.routes[w.flows[flow].route].first_hop + w.flows[flow].fair_hop].link
            if w.links[link].members == 0:
                w.links[link].level = w.flows[flow].fair
            join_group(w, flow, np.int64(w.flows[flow].fair_hop), w.flows[flow].target, now)
    while w.dirty[len(w.dirty) - 1].place > 0:
        drop(w.dirty, np.int64(w.dirty[0].order))


@inline
def _dissolve_groups(w: World, now: float) -> int:
    """Take all flows out of their groups, and return how many; ``target`` is then the bytes that each has left."""
    number = 0
    for flow in range(len(w.flows)):
        w.flows[flow].fair_hop = NOT_GROUPED
        if w.flows[flow].hop >= 0:
            w.flows[flow].target = leave_group(w, flow, now)
            w.flows[flow].fair_hop = WITHOUT_RATE
            number += 1
    for link in range(len(w.links)):
        w.links[link].spare = capacity(w, link)
        w.links[link].unserved = w.links[link].placed
    return number


@inline
def _freeze_flows(w: World, tightest: int, share: float) -> int:
    """Give the flows over the link that is full first their rate; return how many there are."""
    number = 0
    for flow in range(len(w.flows)):
        route = w.flows[flow].route
        first, hops = w.routes[route].first_hop, w.routes[route].hops
        if w.flows[flow].fair_hop != WITHOUT_RATE:
            continue
        for hop in range(hops):
            if w.hops[first + hop].link == tightest:
                w.flows[flow].fair = share
                w.flows[flow].fair_hop = hop
                number += 1
        if w.flows[flow].fair_hop >= 0:
            for at in range(first, first + hops):
                w.links[w.hops[at].link].spare -= w.hops[at].weight * share
                w.links[w.hops[at].link].unserved -= w.hops[at].weight
    return number
