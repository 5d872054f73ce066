"""Admit flows that arrive at their links: alone, in a group, or in queues.

A FIFO link serves one message at a time, in order of arrival. Simultaneous arrivals are served in the plan's arrival
order. A flow starts when it is first in all queues on its route. The earliest arrival always is, so flows never
deadlock.
"""

import numpy as np

from simcomm.compiled.kernel.flow_groups import join_tightest, mark_route_dirty, move_to_group
from simcomm.compiled.kernel.heap import cancel, set_due
from simcomm.compiled.kernel.world import FRESH, World
from simcomm.jit import inline
from simcomm.model.sharing import SAME_ARRIVAL


@inline
def admit_arrivals(w: World, now: float) -> None:
    """Start flows that have arrived: alone on their links, in a group, or in the queues of FIFO links.

    Flows that are alone are found first, so that no flow of a simultaneous group counts as alone.
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
    if now > w.clock[1] * (1 + SAME_ARRIVAL):
        w.clock[1] = now
    for k in range(w.sizes[FRESH]):
        enqueue(w, np.int64(w.flows[k].fresh), now)
    for k in range(w.sizes[FRESH]):
        start_if_first(w, np.int64(w.flows[k].fresh), now)
    w.sizes[FRESH] = 0


@inline
def _is_alone_on_route(w: World, route: int) -> bool:
    """Return whether a flow is alone on its route. On a route with a link that is down, no flow counts as alone."""
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


@inline
def enqueue(w: World, flow: int, now: float) -> None:
    """Insert a flow into the queues of its links. Pause any flow that was first in a queue and is now behind it."""
    w.flows[flow].came = w.clock[1]
    w.flows[flow].target = w.messages[w.flows[flow].message].nbytes
    most_hops, first = len(w.chain) // len(w.flows), w.routes[w.flows[flow].route].first_hop
    for hop in range(w.routes[w.flows[flow].route].hops):
        link, node = w.hop_link[first + hop], flow * most_hops + hop
        before, after = w.links[link].back, -1
        while before >= 0 and _comes_after(w, before // most_hops, flow):
            after = before
            before = w.chain[before].before
        w.chain[node].before = before
        w.chain[node].after = after
        if after >= 0:
            w.chain[after].before = node
        else:
            w.links[link].back = node
        if before >= 0:
            w.chain[before].after = node
            continue
        w.links[link].front = node
        if after >= 0:
            pause(w, after // most_hops, now)


@inline
def _comes_after(w: World, flow: int, other: int) -> bool:
    if w.flows[flow].came != w.flows[other].came:
        return w.flows[flow].came > w.flows[other].came
    return w.arrival_order[w.flows[flow].message] > w.arrival_order[w.flows[other].message]


@inline
def pause(w: World, flow: int, now: float) -> None:
    """Pause a flow and store its remaining bytes in ``target``. Do nothing if the flow already waits."""
    if w.flows[flow].until >= 0:
        cancel(w.calendar, flow)
        remaining = (w.flows[flow].until - now) * w.routes[w.flows[flow].route].alone_rate
        w.flows[flow].target = max(0.0, remaining)
        w.flows[flow].until = -1.0


@inline
def start_if_first(w: World, flow: int, now: float) -> None:
    """Start a waiting flow if it is first on all of its links and none of them is down."""
    route = w.flows[flow].route
    if w.flows[flow].until >= 0 or w.routes[route].alone_rate <= 0:
        return
    most_hops = len(w.chain) // len(w.flows)
    for node in range(flow * most_hops, flow * most_hops + w.routes[route].hops):
        if w.chain[node].before >= 0:
            return
    w.flows[flow].until = now + w.flows[flow].target / w.routes[route].alone_rate
    set_due(w.calendar, flow, w.flows[flow].until)


@inline
def leave_queues(w: World, flow: int, now: float) -> None:
    """Remove a finished flow from its queues, and start the flows behind it that are now first."""
    w.flows[flow].until = -1.0
    most_hops, first = len(w.chain) // len(w.flows), w.routes[w.flows[flow].route].first_hop
    hops = w.routes[w.flows[flow].route].hops
    for hop in range(hops):
        link, after = w.hop_link[first + hop], w.chain[flow * most_hops + hop].after
        w.links[link].crossing -= 1
        w.links[link].front = after
        if after >= 0:
            w.chain[after].before = -1
        else:
            w.links[link].back = -1
    for hop in range(hops):
        front = w.links[w.hop_link[first + hop]].front
        if front >= 0:
            start_if_first(w, front // most_hops, now)
