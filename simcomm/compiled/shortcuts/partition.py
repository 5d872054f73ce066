"""Ranks, links and pairs sorted into classes of like ones, so that one of each class stands for all.

The partition is *equitable*: agents of a class compute the same and have equally many pairs of each class to and from
them, links of a class have the same capacities and latency and carry equally many pairs of each class, and pairs of a
class have the same messages, ends of the same classes and links of the same classes on their route. Then all members
of a class have the same times and rates, by induction over the events: what is under way is always a union of classes,
so the links of a class are shared alike, and each round of progressive filling fixes whole classes.

It is looked for by hashes and then proved by counting; a hash that misleads costs the short cut, never the answer.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from simcomm.compiled.routes import Ints, Routes
from simcomm.compiled.shortcuts.traffic import Hashes, Traffic
from simcomm.hashing import mix

MOST_ROUNDS = 40  # of refinement; what needs more does not fold much
WORTH_IT = 4  # times fewer pairs, or the partition does not pay


class Incidence(NamedTuple):
    """Which pair meets which agent or link, as often as it does; and from which point of view."""

    where: Ints  # agents or links
    pair: Ints


class Partition(NamedTuple):
    """The class of everything, numbered from 0 on."""

    agents: Ints
    links: Ints
    pairs: Ints


def fold(traffic: Traffic, routes: Routes) -> Partition | None:
    """An equitable partition of the traffic, or None where none is found that makes it much smaller."""
    hops = _hops(traffic, routes)
    found = _refined(traffic, routes, hops)
    if found is None or (len(found.pairs) and WORTH_IT * (int(found.pairs.max()) + 1) > len(found.pairs)):
        return None
    return found if _is_equitable(traffic, routes, hops, found) else None


def _hops(traffic: Traffic, routes: Routes) -> Incidence:
    """Each link that each pair crosses."""
    counts = np.diff(routes.first_hop)[traffic.route]
    pair = np.repeat(np.arange(len(traffic.route), dtype=np.int32), counts)
    starts = np.cumsum(counts) - counts
    at = routes.first_hop[traffic.route][pair] + np.arange(len(pair)) - starts[pair]
    return Incidence(routes.hop_link[at], pair)


def _refined(traffic: Traffic, routes: Routes, hops: Incidence) -> Partition | None:
    """Classes told apart by what they meet, until nothing new is told apart; None if that takes long."""
    agents = _numbered(traffic.agent.astype(np.uint64))
    kinds = np.stack([routes.alone, routes.shared, routes.latency], axis=1)
    links = np.unique(kinds, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int32)
    sides = (Incidence(traffic.src, _every(traffic)), Incidence(traffic.dst, _every(traffic)))
    pairs = np.zeros(len(traffic.src), np.int32)
    before = -1
    for _ in range(MOST_ROUNDS):
        on_route = _sums(_salted(links[hops.where], 3), hops.pair, len(pairs))
        ends = _salted(agents[traffic.src], 1) + _salted(agents[traffic.dst], 2)
        pairs = _numbered(mix(on_route + ends) + _salted(traffic.label, 4))
        classes = int(pairs.max(initial=0)) + int(agents.max(initial=0)) + int(links.max(initial=0))
        if classes == before:
            return Partition(agents, links, pairs)
        before = classes
        met = [_sums(_salted(pairs[side.pair], 5 + k), side.where, len(agents)) for k, side in enumerate(sides)]
        agents = _numbered(mix(met[0]) + met[1] + _salted(agents, 7))
        links = _numbered(mix(_sums(_salted(pairs[hops.pair], 8), hops.where, len(links))) + _salted(links, 9))
    return None


def _every(traffic: Traffic) -> Ints:
    return np.arange(len(traffic.src), dtype=np.int32)


def _salted(numbers: npt.NDArray[np.integer], salt: int) -> Hashes:
    return mix(mix(numbers.astype(np.uint64) + np.uint64(1)) + np.uint64(salt))


def _sums(hashes: Hashes, where: Ints, size: int) -> Hashes:
    """The sum of the hashes that belong to each place; it does not depend on their order."""
    halves = (hashes & np.uint64(0xFFFFFFFF), hashes >> np.uint64(32))
    low, high = (np.bincount(where, weights=half.astype(np.float64), minlength=size) for half in halves)
    return mix(low.view(np.uint64)) + high.view(np.uint64)


def _numbered(hashes: Hashes) -> Ints:
    return np.unique(hashes, return_inverse=True)[1].astype(np.int32)


def _is_equitable(traffic: Traffic, routes: Routes, hops: Incidence, found: Partition) -> bool:
    """Whether it is, by counting: no hash is trusted."""
    kinds = (routes.alone, routes.shared, routes.latency)
    ends = (traffic.label, found.agents[traffic.src], found.agents[traffic.dst])
    return (
        _same_in_classes(found.agents, traffic.agent)
        and all(_same_in_classes(found.links, kind) for kind in kinds)
        and all(_same_in_classes(found.pairs, end) for end in ends)
        and _alike(found.pairs, Incidence(hops.pair, found.links[hops.where]))
        and _alike(found.agents, Incidence(traffic.src, found.pairs))
        and _alike(found.agents, Incidence(traffic.dst, found.pairs))
        and _alike(found.links, Incidence(hops.where, found.pairs[hops.pair]))
    )


def _same_in_classes(classes: Ints, values: npt.NDArray[np.generic]) -> bool:
    _, first, which = np.unique(classes, return_index=True, return_inverse=True)
    return bool((values == values[first][which]).all())


def _alike(classes: Ints, met: Incidence) -> bool:
    """Whether all of a class meet equally many of each other class (``met.pair``)."""
    width = int(met.pair.max(initial=0)) + 1
    keys = np.sort(met.where.astype(np.int64) * width + met.pair)
    where, what = np.divmod(keys, width)
    bounds = np.searchsorted(where, np.arange(len(classes) + 1))
    counts, (_, first, which) = np.diff(bounds), np.unique(classes, return_index=True, return_inverse=True)
    if not np.array_equal(counts, counts[first][which]):
        return False
    place = np.arange(len(keys)) - np.repeat(bounds[:-1], counts)
    return np.array_equal(what, what[np.repeat(bounds[:-1][first][which], counts) + place])
