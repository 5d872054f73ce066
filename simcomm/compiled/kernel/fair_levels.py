"""Restore max-min fairness after flows arrive or leave, by correcting the levels of links from lowest to highest.

Only links that a change affects are corrected. If this takes too many corrections, progressive filling computes all
levels anew.
"""

import numpy as np

from simcomm.compiled.kernel.arrays import NOBODY
from simcomm.compiled.kernel.flow_groups import (
    advance_clock,
    join_group,
    leave_group,
    mark_dirty,
    mark_route_dirty,
    mark_stale,
)
from simcomm.compiled.kernel.heap import drop
from simcomm.compiled.kernel.world import World, capacity
from simcomm.jit import inline, separate

TOLERANCE = 1e-12  # relative difference of distinct levels
MOST_CORRECTIONS = 1_000_000  # of links in one instant, before progressive filling; a fat tree can need it
UNCHANGED = 4e-16  # relative change of a level that counts as rounding


NOT_GROUPED, WITHOUT_RATE = -1, -2  # in FLOW.fair_hop, instead of a hop


@separate
def fill_progressively(w: World, now: float) -> None:
    """Compute fair levels from scratch by progressive filling, independently of the present levels."""
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
            link = w.hop_link[w.routes[w.flows[flow].route].first_hop + w.flows[flow].fair_hop]
            if w.links[link].members == 0:
                w.links[link].level = w.flows[flow].fair
            join_group(w, flow, np.int64(w.flows[flow].fair_hop), w.flows[flow].target, now)
    while w.dirty[len(w.dirty) - 1].place > 0:
        drop(w.dirty, np.int64(w.dirty[0].order))


@inline
def _dissolve_groups(w: World, now: float) -> int:
    """Remove all flows from their groups, and store their remaining bytes. Return the number of flows."""
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
    number = 0
    for flow in range(len(w.flows)):
        route = w.flows[flow].route
        first, hops = w.routes[route].first_hop, w.routes[route].hops
        if w.flows[flow].fair_hop != WITHOUT_RATE:
            continue
        for hop in range(hops):
            if w.hop_link[first + hop] == tightest:
                w.flows[flow].fair = share
                w.flows[flow].fair_hop = hop
                number += 1
        if w.flows[flow].fair_hop >= 0:
            for at in range(first, first + hops):
                w.links[w.hop_link[at]].spare -= share
                w.links[w.hop_link[at]].unserved -= 1
    return number


@inline
def restore_fairness(w: World, now: float) -> None:
    """Make all levels fair by corrections. After ``MOST_CORRECTIONS`` of them, use progressive filling instead."""
    corrections = 0
    while w.dirty[len(w.dirty) - 1].place > 0:
        if corrections == MOST_CORRECTIONS:
            fill_progressively(w, now)
            return
        corrections += 1
        link = np.int64(w.dirty[0].order)
        drop(w.dirty, link)
        _correct_level(w, link, now)


@inline
def _correct_level(w: World, link: int, now: float) -> None:
    """Set the level of a link to the rate at which the link is full. Faster flows of other groups join its group."""
    room, members = capacity(w, link), w.links[link].members
    if members > 0:
        level = (room - w.links[link].taken) / members
        if w.links[link].highest <= level * (1 + TOLERANCE):
            _set_level(w, link, level, now)
            return
    elif w.links[link].taken <= room * (1 + TOLERANCE):
        return
    _recount(w, link)
    if members == 0 and w.links[link].taken <= room * (1 + TOLERANCE):
        return
    level = _water_level(w, link, room)
    _set_level(w, link, level, now)
    _capture_faster(w, link, level, now)


@inline
def _recount(w: World, link: int) -> None:
    taken, highest = 0.0, 0.0
    first = w.links[link].first_link_pair
    for at in range(first, first + w.links[link].intos):
        pair = w.link_pairs[at].into
        level = w.links[w.link_pairs[pair].src].level
        taken += w.link_pairs[pair].carried * min(level, w.links[link].most)
        highest = max(highest, level)
    w.links[link].taken = taken
    w.links[link].highest = highest


@inline
def _water_level(w: World, link: int, room: float) -> float:
    """Return the level at which a link's bandwidth ``room`` is used up, if faster flows slow down to that level.

    Newton's method finds the level from below. The total rate is concave and piecewise linear in the level, so a finite
    number of rounds is enough.
    """
    members, first = w.links[link].members, w.links[link].first_link_pair
    level = (room - w.links[link].taken) / members if members > 0 else room / w.links[link].placed
    while True:
        rest, number = room, members
        for at in range(first, first + w.links[link].intos):
            pair = w.link_pairs[at].into
            other = w.links[w.link_pairs[pair].src].level
            if other > level:
                number += w.link_pairs[pair].carried
            else:
                rest -= w.link_pairs[pair].carried * other
        if number == 0 or rest / number <= level + UNCHANGED * abs(level):
            return level
        level = rest / number


@inline
def _set_level(w: World, link: int, level: float, now: float) -> None:
    before = w.links[link].level
    if w.links[link].members == 0:
        w.links[link].level = level
        return
    if abs(level - before) <= UNCHANGED * level:
        return
    advance_clock(w, link, now)
    w.links[link].level = level
    mark_stale(w, link)
    first = w.links[link].first_link_pair
    for at in range(first, first + w.links[link].outs):
        pair = w.link_pairs[at].out
        other = np.int64(w.link_pairs[pair].dst)
        most = w.links[other].most
        w.links[other].taken += w.link_pairs[pair].carried * (min(level, most) - min(before, most))
        w.links[other].highest = max(w.links[other].highest, level)
        mark_dirty(w, other)


@inline
def _capture_faster(w: World, link: int, level: float, now: float) -> None:
    most_hops = len(w.chain) // len(w.flows)
    first = w.links[link].first_link_pair
    for at in range(first + w.links[link].intos - 1, first - 1, -1):
        pair = w.link_pairs[at].into
        if w.links[w.link_pairs[pair].src].level <= level * (1 + TOLERANCE):
            continue
        node = np.int64(w.link_pairs[pair].head)
        while node >= 0:
            following = np.int64(w.chain[node].after)
            flow = node // most_hops
            join_group(w, flow, node - flow * most_hops, leave_group(w, flow, now), now)
            mark_route_dirty(w, w.flows[flow].route)
            node = following
