"""Links that serve one message at a time: each has a queue, and a flow goes when it is first in all of its route's.

Queues are in the order in which flows came, those that came together in the order of their turns. Whoever is first in
one queue is then before all others in every queue, so that flows never wait for each other in a circle.
"""

from simcomm.compiled.kernel.calendar import cancel, schedule
from simcomm.compiled.kernel.jit import inner
from simcomm.compiled.kernel.world import World


@inner
def queue_up(w: World, flow: int, now: float) -> None:
    """The flow stands in the queues of its links; one that had a link, but comes after it, waits again."""
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
            halt(w, after // most_hops, now)


@inner
def _comes_after(w: World, one: int, other: int) -> bool:
    if w.flows[one].came != w.flows[other].came:
        return w.flows[one].came > w.flows[other].came
    return w.turn[w.flows[one].message] > w.turn[w.flows[other].message]


@inner
def halt(w: World, flow: int, now: float) -> None:
    """The flow waits, with what is left of it."""
    if w.flows[flow].until >= 0:
        cancel(w.calendar, flow)
        left = (w.flows[flow].until - now) * w.routes[w.flows[flow].route].alone_rate
        w.flows[flow].target = max(0.0, left)
        w.flows[flow].until = -1.0


@inner
def go_if_first(w: World, flow: int, now: float) -> None:
    """The flow has its links, if nobody is before it on any of them and none is down."""
    route = w.flows[flow].route
    if w.flows[flow].until >= 0 or w.routes[route].alone_rate <= 0:
        return
    most_hops = len(w.chain) // len(w.flows)
    for node in range(flow * most_hops, flow * most_hops + w.routes[route].hops):
        if w.chain[node].before >= 0:
            return
    w.flows[flow].until = now + w.flows[flow].target / w.routes[route].alone_rate
    schedule(w.calendar, flow, w.flows[flow].until)


@inner
def make_way(w: World, flow: int, now: float) -> None:
    """The flow is through and off its links; those behind it that are first now have theirs."""
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
            go_if_first(w, front // most_hops, now)
