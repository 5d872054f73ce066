"""Links that serve one message at a time: each has a queue, and a flow goes when it is first in all of its route's.

Queues are in the order in which flows came; those that came together are in the plan's arrival order. Whoever came
first of all is first in all its queues, so that flows never wait for each other in a circle.
"""

from simcomm.compiled.kernel.calendar import cancel, set_due
from simcomm.compiled.kernel.world import World
from simcomm.jit import inline


@inline
def enqueue(w: World, flow: int, now: float) -> None:
    """Put a flow in the queues of its links. Pause one that was first in a queue and comes after it."""
    w.flows[flow].came = w.clock[1]
    w.flows[flow].target = w.messages[w.flows[flow].message].nbytes
    most_hops, first = len(w.chain) // len(w.flows), w.routes[w.flows[flow].route].first_hop
    for hop in range(w.routes[w.flows[flow].route].hops):
        link, node = w.hops[first + hop].link, flow * most_hops + hop
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
def _comes_after(w: World, one: int, other: int) -> bool:
    """Return whether one flow is to be served after another."""
    if w.flows[one].came != w.flows[other].came:
        return w.flows[one].came > w.flows[other].came
    return w.arrival_order[w.flows[one].message] > w.arrival_order[w.flows[other].message]


@inline
def pause(w: World, flow: int, now: float) -> None:
    """Let a flow wait; ``target`` is then the bytes it has left. One that waits already is left as it is."""
    if w.flows[flow].until >= 0:
        cancel(w.calendar, flow)
        left = (w.flows[flow].until - now) * w.routes[w.flows[flow].route].alone_rate
        w.flows[flow].target = max(0.0, left)
        w.flows[flow].until = -1.0


@inline
def start_if_first(w: World, flow: int, now: float) -> None:
    """Start a flow that waits if no other is before it on any of its links and none of them is down."""
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
    """Take a flow that is through out of its queues, and start those behind it that are first now."""
    w.flows[flow].until = -1.0
    most_hops, first = len(w.chain) // len(w.flows), w.routes[w.flows[flow].route].first_hop
    hops = w.routes[w.flows[flow].route].hops
    for hop in range(hops):
        link, after = w.hops[first + hop].link, w.chain[flow * most_hops + hop].after
        w.links[link].crossing -= w.hops[first + hop].weight
        w.links[link].front = after
        if after >= 0:
            w.chain[after].before = -1
        else:
            w.links[link].back = -1
    for hop in range(hops):
        front = w.links[w.hops[first + hop].link].front
        if front >= 0:
            start_if_first(w, front // most_hops, now)
