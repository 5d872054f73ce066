"""Flows that share links max-min fairly, kept in groups so that many rates can change at once.

A link that holds flows back has a *group*: the flows that get their rate from it. They all have the same rate, the
link's ``level``, so one clock a group is enough: it counts the bytes that each of them has moved, and a flow is
through when the clock shows its ``target``. When a flow comes or goes only levels change, link by link.

It is fair (Bertsekas and Gallager, "Data Networks", 2nd edition, section 6.5.2) when every link with a group is full,
none carries more than its capacity, and no flow on a link with a group is faster than the link's level.
"""

import numpy as np

from simcomm.compiled.kernel.calendar import cancel
from simcomm.compiled.kernel.heap import drop, put
from simcomm.compiled.kernel.jit import NOBODY, inner
from simcomm.compiled.kernel.pairing_heap import meld, without
from simcomm.compiled.kernel.world import STALE, World


@inner
def capacity(w: World, link: int) -> float:
    """Bytes/s of a link, which may depend on whether one flow is on it or more."""
    return w.links[link].shared if w.links[link].crossing > 1 else w.links[link].alone


@inner
def touch(w: World, link: int) -> None:
    """The link is looked at again before this instant is over, if it holds anyone back or should."""
    if w.dirty[link].place >= 0:
        return
    left = capacity(w, link) - w.links[link].taken
    if w.links[link].members > 0:
        put(w.dirty, link, left / w.links[link].members)
    elif left < 0:
        put(w.dirty, link, (left + w.links[link].taken) / w.links[link].placed)


@inner
def touch_route(w: World, route: int) -> None:
    """All links of a route are looked at again."""
    first = w.routes[route].first_hop
    for at in range(first, first + w.routes[route].hops):
        touch(w, np.int64(w.hops[at].link))


@inner
def spoil(w: World, link: int) -> None:
    """The finish of the link's group is told anew before this instant is over."""
    if w.links[link].is_stale == 0:
        w.links[link].is_stale = 1
        w.links[w.sizes[STALE]].stale = link
        w.sizes[STALE] += 1


@inner
def bring_up(w: World, link: int, now: float) -> None:
    """The clock shows what members have moved until now."""
    w.links[link].clock += w.links[link].level * (now - w.links[link].since)
    w.links[link].since = now


@inner
def place(w: World, flow: int, left: float, now: float) -> None:
    """A flow with so many bytes left joins the group of the link that seems to hold it back most."""
    route = w.flows[flow].route
    first, hops = w.routes[route].first_hop, w.routes[route].hops
    best, lowest = NOBODY + 1, 1e300
    for hop in range(hops):
        link = np.int64(w.hops[first + hop].link)
        others = w.links[link].members + w.links[link].crossing - w.links[link].placed
        room = capacity(w, link)
        free = room - w.links[link].taken
        estimate = room / w.links[link].crossing
        if free * w.links[link].crossing > room * others:
            estimate = free / others
        if estimate < lowest:
            best, lowest = hop, estimate
    for hop in range(hops):
        w.links[w.hops[first + hop].link].placed += w.hops[first + hop].weight
    link = np.int64(w.hops[first + best].link)
    if w.links[link].members == 0:
        w.links[link].level = lowest
    join(w, flow, best, left, now)


@inner
def join(w: World, flow: int, hop: int, left: float, now: float) -> None:
    """The flow is in the group of one link of its route, and its other links know of it."""
    route = w.flows[flow].route
    first, hops = w.routes[route].first_hop, w.routes[route].hops
    link = np.int64(w.hops[first + hop].link)
    if w.links[link].members == 0:
        w.links[link].clock = 0.0
        w.links[link].since = now
    bring_up(w, link, now)
    w.flows[flow].target = w.links[link].clock + left
    w.flows[flow].child = -1
    w.flows[flow].sibling = -1
    w.flows[flow].before = -1
    w.links[link].root = meld(w.flows, np.int64(w.links[link].root), flow)
    w.flows[flow].hop = hop
    w.links[link].members += w.hops[first + hop].weight
    spoil(w, link)
    pairs = w.routes[route].first_pair + hop * hops
    for other in range(hops):
        if other != hop:
            _tell(w, flow, w.hop_pair[pairs + other], other, w.hops[first + other].weight)


@inner
def share_links(w: World, flow: int, now: float) -> None:
    """A flow that had its links for itself is in a group from now on."""
    cancel(w.calendar, flow)
    route = w.flows[flow].route
    for at in range(w.routes[route].first_hop, w.routes[route].first_hop + w.routes[route].hops):
        w.links[w.hops[at].link].solo = -1
    left = (w.flows[flow].until - now) * w.routes[route].alone_rate
    w.flows[flow].until = -1.0
    place(w, flow, max(0.0, left), now)
    touch_route(w, route)


@inner
def leave(w: World, flow: int, now: float) -> float:
    """The flow is in no group; returns the bytes that it has left."""
    link = np.int64(w.hops[w.routes[w.flows[flow].route].first_hop + w.flows[flow].hop].link)
    bring_up(w, link, now)
    w.links[link].root = without(w.flows, np.int64(w.links[link].root), flow)
    withdraw(w, flow)
    return w.flows[flow].target - w.links[link].clock


@inner
def withdraw(w: World, flow: int) -> None:
    """The flow, already out of its group's heap, is in no group."""
    route, hop = w.flows[flow].route, w.flows[flow].hop
    first, hops = w.routes[route].first_hop, w.routes[route].hops
    link = np.int64(w.hops[first + hop].link)
    w.links[link].members -= w.hops[first + hop].weight
    w.flows[flow].hop = -1
    spoil(w, link)
    pairs = w.routes[route].first_pair + hop * hops
    for other in range(hops):
        if other != hop:
            _forget(w, flow, w.hop_pair[pairs + other], other, w.hops[first + other].weight)


@inner
def _tell(w: World, flow: int, pair: int, hop: int, weight: int) -> None:
    """A flow of the pair's first link is known at its second, which is this hop of the flow's route."""
    src, dst = w.pairs[pair].src, w.pairs[pair].dst
    if w.pairs[pair].carried == 0:
        at = w.links[src].first_pair + w.links[src].outs
        w.pairs[at].out = pair
        w.pairs[pair].out_place = at
        w.links[src].outs += 1
        at = w.links[dst].first_pair + w.links[dst].intos
        w.pairs[at].into = pair
        w.pairs[pair].into_place = at
        w.links[dst].intos += 1
    w.pairs[pair].carried += weight
    level = w.links[src].level
    w.links[dst].taken += weight * min(level, w.links[dst].most)
    w.links[dst].highest = max(w.links[dst].highest, level)
    node, follower = flow * (len(w.chain) // len(w.flows)) + hop, w.pairs[pair].head
    w.chain[node].after = follower
    w.chain[node].before = -1
    w.pairs[pair].head = node
    if follower >= 0:
        w.chain[follower].before = node


@inner
def _forget(w: World, flow: int, pair: int, hop: int, weight: int) -> None:
    """The other way round."""
    src, dst = w.pairs[pair].src, w.pairs[pair].dst
    w.pairs[pair].carried -= weight
    w.links[dst].taken -= weight * min(w.links[src].level, w.links[dst].most)
    if w.pairs[pair].carried == 0:
        _strike(w, pair, src, dst)
    node = flow * (len(w.chain) // len(w.flows)) + hop
    after, before = w.chain[node].after, w.chain[node].before
    if after >= 0:
        w.chain[after].before = before
    if before >= 0:
        w.chain[before].after = after
    else:
        w.pairs[pair].head = after


@inner
def _strike(w: World, pair: int, src: int, dst: int) -> None:
    """The pair is off the lists of those that carry something."""
    w.links[src].outs -= 1
    last, at = w.pairs[w.links[src].first_pair + w.links[src].outs].out, w.pairs[pair].out_place
    w.pairs[at].out = last
    w.pairs[last].out_place = at
    w.links[dst].intos -= 1
    last, at = w.pairs[w.links[dst].first_pair + w.links[dst].intos].into, w.pairs[pair].into_place
    w.pairs[at].into = last
    w.pairs[last].into_place = at
    if w.links[dst].intos == 0:
        w.links[dst].taken = 0.0  # exactly, whatever was rounded on the way
        w.links[dst].highest = 0.0


@inner
def retell(w: World) -> None:
    """Every group's finish is right."""
    for k in range(w.sizes[STALE]):
        link = np.int64(w.links[k].stale)
        w.links[link].is_stale = 0
        if w.links[link].members == 0:
            drop(w.finish, link)
        else:
            left = w.flows[w.links[link].root].target - w.links[link].clock
            wait = left / w.links[link].level if left > 0 else 0.0  # infinite on a link that is down
            put(w.finish, link, w.links[link].since + wait)
    w.sizes[STALE] = 0
