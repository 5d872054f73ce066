"""Start flows that have reached their links, alone or as members of a group."""

import numpy as np

from simcomm.compiled.kernel.flow_groups import join_tightest, mark_route_dirty, move_to_group
from simcomm.compiled.kernel.heap import set_due
from simcomm.compiled.kernel.world import FRESH, World
from simcomm.jit import inline


@inline
def admit_arrivals(w: World, now: float) -> None:
    """Start the flows that have reached their links. Flows that share links become members of groups.

    Flows that are alone are found first, so that no flow counts as alone if others reach its links at the same time.
    """
    together = 0
    for k in range(w.sizes[FRESH]):
        flow = w.flows[k].fresh
        if _is_alone_on_route(w, w.flows[flow].route):
            _start_solo(w, flow, now)
        else:
            w.flows[together].fresh = flow
            together += 1
    for k in range(together):
        _group_solo_flows(w, w.flows[k].fresh, now)
    for k in range(together):
        flow = np.int64(w.flows[k].fresh)
        join_tightest(w, flow, w.messages[w.flows[flow].message].nbytes, now)
    for k in range(together):
        mark_route_dirty(w, w.flows[w.flows[k].fresh].route)
    w.sizes[FRESH] = 0


@inline
def _is_alone_on_route(w: World, route: int) -> bool:
    """Return whether all links of a route are up, and at most one flow crosses each of them."""
    first, most = w.routes[route].first_hop, 2 * (w.routes[route].alone_rate <= 0)
    for at in range(first, first + w.routes[route].hops):
        most = max(most, w.links[w.hop_link[at]].crossing)
    return most <= 1


@inline
def _start_solo(w: World, flow: int, now: float) -> None:
    route = w.flows[flow].route
    first = w.routes[route].first_hop
    for at in range(first, first + w.routes[route].hops):
        w.links[w.hop_link[at]].solo = flow
    w.flows[flow].until = now + w.messages[w.flows[flow].message].nbytes / w.routes[route].alone_rate
    set_due(w.calendar, np.int64(flow), w.flows[flow].until)


@inline
def _group_solo_flows(w: World, flow: int, now: float) -> None:
    route = w.flows[flow].route
    first = w.routes[route].first_hop
    for at in range(first, first + w.routes[route].hops):
        other = np.int64(w.links[w.hop_link[at]].solo)
        if other >= 0:
            move_to_group(w, other, now)
