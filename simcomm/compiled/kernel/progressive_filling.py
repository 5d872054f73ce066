"""Everything shared out afresh: progressive filling over all flows at once, which needs no earlier state."""

import numpy as np

from simcomm.compiled.kernel.flow_groups import capacity, join, leave
from simcomm.compiled.kernel.heap import drop
from simcomm.compiled.kernel.jit import NOBODY, apart, inner
from simcomm.compiled.kernel.world import World


@apart
def share_out(w: World, now: float) -> None:
    """All levels are fair."""
    remaining = _unfill(w, now)
    while remaining > 0:
        tightest, share = NOBODY, np.inf
        for link in range(len(w.links)):
            if w.links[link].unserved > 0 and (
                tightest < 0 or max(0.0, w.links[link].spare) / w.links[link].unserved < share
            ):
                tightest, share = link, max(0.0, w.links[link].spare) / w.links[link].unserved
        remaining -= _freeze(w, tightest, share)
    for flow in range(len(w.flows)):
        if w.flows[flow].fair_hop >= 0:
            link = w.hops[w.routes[w.flows[flow].route].first_hop + w.flows[flow].fair_hop].link
            if w.links[link].members == 0:
                w.links[link].level = w.flows[flow].fair
            join(w, flow, np.int64(w.flows[flow].fair_hop), w.flows[flow].target, now)
    while w.dirty[-1].place > 0:
        drop(w.dirty, w.dirty[0].order)


@inner
def _unfill(w: World, now: float) -> int:
    """No flow is in a group, ``target`` is what each has left, and all links are empty; returns how many flows."""
    number = 0
    for flow in range(len(w.flows)):
        w.flows[flow].fair_hop = -1
        if w.flows[flow].hop >= 0:
            w.flows[flow].target = leave(w, flow, now)
            w.flows[flow].fair_hop = -2
            number += 1
    for link in range(len(w.links)):
        w.links[link].spare = capacity(w, link)
        w.links[link].unserved = w.links[link].placed
    return number


@inner
def _freeze(w: World, tightest: int, share: float) -> int:
    """Flows over the link that is full first have their rate; returns how many."""
    number = 0
    for flow in range(len(w.flows)):
        route = w.flows[flow].route
        first, hops = w.routes[route].first_hop, w.routes[route].hops
        if w.flows[flow].fair_hop != -2:
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
