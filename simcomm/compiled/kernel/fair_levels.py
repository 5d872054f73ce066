"""Levels put right after flows came and went: link by link from the lowest, only as far as a change reaches."""

import numpy as np

from simcomm.compiled.kernel.flow_groups import bring_up, capacity, join, leave, spoil, touch, touch_route
from simcomm.compiled.kernel.heap import drop
from simcomm.compiled.kernel.jit import inner
from simcomm.compiled.kernel.progressive_filling import share_out
from simcomm.compiled.kernel.world import World

TOLERANCE = 1e-12  # a share of a level by which two are told apart
UNCHANGED = 4e-16  # share of a level below which a change is rounding


@inner
def settle(w: World, now: float, patience: int) -> None:
    """All levels are fair. After ``patience`` looks at links everything is shared out afresh instead."""
    while w.dirty[-1].place > 0:
        if patience == 0:
            share_out(w, now)
            return
        patience -= 1
        link = np.int64(w.dirty[0].order)
        drop(w.dirty, link)
        _put_right(w, link, now)


@inner
def _put_right(w: World, link: int, now: float) -> None:
    """The link is full or holds nobody back, given the rates of the flows on it that other links hold back."""
    room, members = capacity(w, link), w.links[link].members
    if members > 0:
        level = (room - w.links[link].taken) / members
        if w.links[link].highest <= level * (1 + TOLERANCE):
            _publish(w, link, level, now)
            return
    elif w.links[link].taken <= room * (1 + TOLERANCE):
        return
    _recount(w, link)
    if members == 0 and w.links[link].taken <= room * (1 + TOLERANCE):
        return
    level = _water_level(w, link, room)
    _publish(w, link, level, now)
    _pull(w, link, level, now)


@inner
def _recount(w: World, link: int) -> None:
    """What others' flows take of the link, added up anew."""
    taken, highest = 0.0, 0.0
    first = w.links[link].first_pair
    for at in range(first, first + w.links[link].intos):
        pair = w.pairs[at].into
        level = w.links[w.pairs[pair].src].level
        taken += w.pairs[pair].carried * min(level, w.links[link].most)
        highest = max(highest, level)
    w.links[link].taken = taken
    w.links[link].highest = highest


@inner
def _water_level(w: World, link: int, room: float) -> float:
    """The level at which the link is full when faster flows of other groups come down to it.

    Newton's method from below on a function that is concave and piecewise linear: it ends after finitely many rounds.
    """
    members, first = w.links[link].members, w.links[link].first_pair
    level = (room - w.links[link].taken) / members if members > 0 else room / w.links[link].placed
    while True:
        rest, number = room, members
        for at in range(first, first + w.links[link].intos):
            pair = w.pairs[at].into
            other = w.links[w.pairs[pair].src].level
            if other > level:
                number += w.pairs[pair].carried
            else:
                rest -= w.pairs[pair].carried * other
        if number == 0 or rest / number <= level + UNCHANGED * abs(level):
            return level
        level = rest / number


@inner
def _publish(w: World, link: int, level: float, now: float) -> None:
    """The link's level is this, and the other links of its members have taken note."""
    before = w.links[link].level
    if w.links[link].members == 0:
        w.links[link].level = level
        return
    if abs(level - before) <= UNCHANGED * level:
        return
    bring_up(w, link, now)
    w.links[link].level = level
    spoil(w, link)
    first = w.links[link].first_pair
    for at in range(first, first + w.links[link].outs):
        pair = w.pairs[at].out
        other = np.int64(w.pairs[pair].dst)
        most = w.links[other].most
        w.links[other].taken += w.pairs[pair].carried * (min(level, most) - min(before, most))
        w.links[other].highest = max(w.links[other].highest, level)
        touch(w, other)


@inner
def _pull(w: World, link: int, level: float, now: float) -> None:
    """Flows on the link that were faster than its level are in its group now."""
    most_hops = len(w.chain) // len(w.flows)
    first = w.links[link].first_pair
    for at in range(first + w.links[link].intos - 1, first - 1, -1):
        pair = w.pairs[at].into
        if w.links[w.pairs[pair].src].level <= level * (1 + TOLERANCE):
            continue
        node = np.int64(w.pairs[pair].head)
        while node >= 0:
            following = np.int64(w.chain[node].after)
            flow = node // most_hops
            join(w, flow, node - flow * most_hops, leave(w, flow, now), now)
            touch_route(w, w.flows[flow].route)
            node = following
