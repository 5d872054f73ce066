"""Group flows that share links max-min fairly, so that the rates of a group change together.

A link that limits flows has a *group*: the flows whose rate it determines. They all have the same rate, the link's
``level``, so one clock per group is enough. It counts the bytes that each member has moved, and a member finishes when
the clock reaches the member's ``target``. Arrivals and departures only change levels, link by link. A link's ``taken``
is the bytes/s of its flows that belong to other links' groups, summed over link pairs.

Rates are fair (Bertsekas and Gallager, "Data Networks", 2nd edition, section 6.5.2) if every link with a group is full,
no link exceeds its capacity, and no flow on a link with a group is faster than the link's level.
"""

import numpy as np

from simcomm.compiled.kernel.arrays import NOBODY
from simcomm.compiled.kernel.heap import cancel, drop, meld, put, remove
from simcomm.compiled.kernel.world import STALE, World, capacity
from simcomm.jit import inline, separate


@inline
def mark_dirty(w: World, link: int) -> None:
    """Queue a link's level for correction at this instant, if the link limits flows or exceeds its capacity."""
    if w.dirty[link].place >= 0:
        return
    remaining = capacity(w, link) - w.links[link].taken
    if w.links[link].members > 0:
        put(w.dirty, link, remaining / w.links[link].members)
    elif remaining < 0:
        put(w.dirty, link, (remaining + w.links[link].taken) / w.links[link].placed)


@inline
def mark_route_dirty(w: World, route: int) -> None:
    first = w.routes[route].first_hop
    for at in range(first, first + w.routes[route].hops):
        mark_dirty(w, np.int64(w.hop_link[at]))


@inline
def mark_stale(w: World, link: int) -> None:
    """Queue a link for an update of the time at which the next flow of its group finishes."""
    if w.links[link].is_stale == 0:
        w.links[link].is_stale = 1
        w.links[w.sizes[STALE]].stale = link
        w.sizes[STALE] += 1


@inline
def advance_clock(w: World, link: int, now: float) -> None:
    """Set the clock of a link's group to the bytes that each member has moved until now."""
    w.links[link].clock += w.links[link].level * (now - w.links[link].since)
    w.links[link].since = now


@inline
def join_tightest(w: World, flow: int, left: float, now: float) -> None:
    """Add a flow with ``left`` remaining bytes to the group of the link that probably limits the flow most.

    Levels are corrected afterwards, so a wrong guess only costs time.
    """
    route = w.flows[flow].route
    first, hops = w.routes[route].first_hop, w.routes[route].hops
    best, lowest = NOBODY + 1, 1e300
    for hop in range(hops):
        link = np.int64(w.hop_link[first + hop])
        others = w.links[link].members + w.links[link].crossing - w.links[link].placed
        room = capacity(w, link)
        free = room - w.links[link].taken
        estimate = room / w.links[link].crossing
        if free * w.links[link].crossing > room * others:
            estimate = free / others
        if estimate < lowest:
            best, lowest = hop, estimate
    for hop in range(hops):
        w.links[w.hop_link[first + hop]].placed += 1
    link = np.int64(w.hop_link[first + best])
    if w.links[link].members == 0:
        w.links[link].level = lowest
    join_group(w, flow, best, left, now)


@separate
def join_group(w: World, flow: int, hop: int, left: float, now: float) -> None:
    """Add a flow to the group of the link at position ``hop`` of its route, and count it on the other links."""
    route = w.flows[flow].route
    first, hops = w.routes[route].first_hop, w.routes[route].hops
    link = np.int64(w.hop_link[first + hop])
    if w.links[link].members == 0:
        w.links[link].clock = 0.0
        w.links[link].since = now
    advance_clock(w, link, now)
    w.flows[flow].target = w.links[link].clock + left
    w.flows[flow].child = -1
    w.flows[flow].sibling = -1
    w.flows[flow].before = -1
    w.links[link].root = meld(w.flows, np.int64(w.links[link].root), flow)
    w.flows[flow].hop = hop
    w.links[link].members += 1
    mark_stale(w, link)
    pairs = w.routes[route].first_link_pair + hop * hops
    for other in range(hops):
        if other != hop:
            _add_to_link_pair(w, flow, w.hop_link_pair[pairs + other], other)


@inline
def move_to_group(w: World, flow: int, now: float) -> None:
    """Move a flow that was alone on its links to a group."""
    cancel(w.calendar, flow)
    route = w.flows[flow].route
    for at in range(w.routes[route].first_hop, w.routes[route].first_hop + w.routes[route].hops):
        w.links[w.hop_link[at]].solo = -1
    left = (w.flows[flow].until - now) * w.routes[route].alone_rate
    w.flows[flow].until = -1.0
    join_tightest(w, flow, max(0.0, left), now)
    mark_route_dirty(w, route)


@separate
def leave_group(w: World, flow: int, now: float) -> float:
    """Remove a flow from its group. Return its remaining bytes."""
    link = np.int64(w.hop_link[w.routes[w.flows[flow].route].first_hop + w.flows[flow].hop])
    advance_clock(w, link, now)
    w.links[link].root = remove(w.flows, np.int64(w.links[link].root), flow)
    remove_member(w, flow)
    return w.flows[flow].target - w.links[link].clock


@separate
def remove_member(w: World, flow: int) -> None:
    """Remove a flow from the counts of its group and link pairs, after it has left the group's heap."""
    route, hop = w.flows[flow].route, w.flows[flow].hop
    first, hops = w.routes[route].first_hop, w.routes[route].hops
    link = np.int64(w.hop_link[first + hop])
    w.links[link].members -= 1
    w.flows[flow].hop = -1
    mark_stale(w, link)
    pairs = w.routes[route].first_link_pair + hop * hops
    for other in range(hops):
        if other != hop:
            _remove_from_link_pair(w, flow, w.hop_link_pair[pairs + other], other)


@inline
def _add_to_link_pair(w: World, flow: int, pair: int, hop: int) -> None:
    """Count a flow on a link pair: the link that determines its rate, and the link at hop ``hop`` of its route."""
    src, dst = w.link_pairs[pair].src, w.link_pairs[pair].dst
    if w.link_pairs[pair].carried == 0:
        at = w.links[src].first_link_pair + w.links[src].outs
        w.link_pairs[at].out = pair
        w.link_pairs[pair].out_place = at
        w.links[src].outs += 1
        at = w.links[dst].first_link_pair + w.links[dst].intos
        w.link_pairs[at].into = pair
        w.link_pairs[pair].into_place = at
        w.links[dst].intos += 1
    w.link_pairs[pair].carried += 1
    level = w.links[src].level
    w.links[dst].taken += min(level, w.links[dst].most)
    w.links[dst].highest = max(w.links[dst].highest, level)
    node, follower = flow * (len(w.chain) // len(w.flows)) + hop, w.link_pairs[pair].head
    w.chain[node].after = follower
    w.chain[node].before = -1
    w.link_pairs[pair].head = node
    if follower >= 0:
        w.chain[follower].before = node


@inline
def _remove_from_link_pair(w: World, flow: int, pair: int, hop: int) -> None:
    src, dst = w.link_pairs[pair].src, w.link_pairs[pair].dst
    w.link_pairs[pair].carried -= 1
    w.links[dst].taken -= min(w.links[src].level, w.links[dst].most)
    if w.link_pairs[pair].carried == 0:
        _delist_link_pair(w, pair, src, dst)
    node = flow * (len(w.chain) // len(w.flows)) + hop
    after, before = w.chain[node].after, w.chain[node].before
    if after >= 0:
        w.chain[after].before = before
    if before >= 0:
        w.chain[before].after = after
    else:
        w.link_pairs[pair].head = after


@inline
def _delist_link_pair(w: World, pair: int, src: int, dst: int) -> None:
    w.links[src].outs -= 1
    last, at = w.link_pairs[w.links[src].first_link_pair + w.links[src].outs].out, w.link_pairs[pair].out_place
    w.link_pairs[at].out = last
    w.link_pairs[last].out_place = at
    w.links[dst].intos -= 1
    last, at = w.link_pairs[w.links[dst].first_link_pair + w.links[dst].intos].into, w.link_pairs[pair].into_place
    w.link_pairs[at].into = last
    w.link_pairs[last].into_place = at
    if w.links[dst].intos == 0:
        w.links[dst].taken = 0.0  # exactly, without the rounding errors so far
        w.links[dst].highest = 0.0


@inline
def update_finishes(w: World) -> None:
    """Update the finish time of each group that ``mark_stale`` has marked."""
    for k in range(w.sizes[STALE]):
        link = np.int64(w.links[k].stale)
        w.links[link].is_stale = 0
        if w.links[link].members == 0:
            drop(w.finish, link)
        else:
            left = w.flows[w.links[link].root].target - w.links[link].clock
            wait = left / w.links[link].level if left > 0 else 0.0  # infinity on a link that is down
            put(w.finish, link, w.links[link].since + wait)
    w.sizes[STALE] = 0
