"""Flows that come to their links: alone there, beside others in a group, or in queues."""

import numpy as np

from simcomm.compiled.kernel.calendar import set_due
from simcomm.compiled.kernel.fifo import enqueue, start_if_first
from simcomm.compiled.kernel.flow_groups import join_tightest, mark_route_dirty, move_to_group
from simcomm.compiled.kernel.world import FRESH, World
from simcomm.jit import inline
from simcomm.model.same_time import SAME_ARRIVAL


@inline
def admit_arrivals(w: World, now: float) -> None:
    """Start flows that have come: alone on their links, in a group beside others, or in queues of fifo links.

    Those alone are found first, so that a flow that came with others does not count as alone.
    """
    if len(w.arrival_order) > 0:
        _admit_to_queues(w, now)
        return
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
def _admit_to_queues(w: World, now: float) -> None:
    """Put flows that have come in the queues of their links, and start those that are first in all of theirs."""
    if now > w.clock[1] * (1 + SAME_ARRIVAL):
        w.clock[1] = now
    for k in range(w.sizes[FRESH]):
        enqueue(w, np.int64(w.flows[k].fresh), now)
    for k in range(w.sizes[FRESH]):
        start_if_first(w, np.int64(w.flows[k].fresh), now)
    w.sizes[FRESH] = 0


@inline
def _is_alone_on_route(w: World, route: int) -> bool:
    """Return whether one flow crosses the links of a route; with a link down it has to be in a group in any case."""
    first, most = w.routes[route].first_hop, 2 * (w.routes[route].alone_rate <= 0)
    for at in range(first, first + w.routes[route].hops):
        most = max(most, w.links[w.hops[at].link].crossing)
    return most <= 1


@inline
def _start_solo(w: World, flow: int, now: float) -> None:
    """Give a flow its links for itself."""
    route = w.flows[flow].route
    first = w.routes[route].first_hop
    for at in range(first, first + w.routes[route].hops):
        w.links[w.hops[at].link].solo = flow
    w.flows[flow].until = now + w.messages[w.flows[flow].message].nbytes / w.routes[route].alone_rate
    set_due(w.calendar, np.int64(flow), w.flows[flow].until)


@inline
def _group_solo_flows(w: World, flow: int, now: float) -> None:
    """Move flows that had a link of this one's route for themselves to groups."""
    route = w.flows[flow].route
    first = w.routes[route].first_hop
    for at in range(first, first + w.routes[route].hops):
        other = np.int64(w.links[w.hops[at].link].solo)
        if other >= 0:
            move_to_group(w, other, now)
