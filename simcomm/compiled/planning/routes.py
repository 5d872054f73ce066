"""Convert the routes between pairs of ranks to arrays for the kernel, with only the links that can limit a message.

A link is *private* if it never carries two messages at once. A message is in flight only while its sender and its
receiver are in the stages that post it. So a link is private if all its messages come from one rank that sends one at a
time, go to one rank that receives one at a time, or belong to one pair with one message at a time.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from collectives.budget import SHORTER_ROUTES, Gigabyte, allowed, ways_out
from collectives.errors import TooLarge
from collectives.schedule.rules import receives
from collectives.schedule.symmetric import SymmetricSchedule
from collectives.step import Kind
from collectives.transport import Transport
from simcomm.cluster.cluster import Cluster
from simcomm.cluster.paths import find_shortest_paths
from simcomm.compiled.kernel.arrays import (
    LINK_PAIR,
    ROUTE,
    UNLIMITED,
    Bools,
    Floats,
    Ints,
    LinkRecords,
    LongInts,
    Records,
    number_distinct,
)
from simcomm.compiled.planning.schedule_plan import ActiveSteps, Pairs, SchedulePlan, distances, find_active_steps

HOPS_AT_ONCE = 1_000_000  # hops processed at a time, to limit memory


class Routes(NamedTuple):
    """The routes by number, and their links. Route r crosses the links ``hop_link[first_hop[r]:first_hop[r + 1]]``."""

    first_hop: Ints  # [routes + 1]
    hop_link: Ints  # [hops]
    delay: Floats  # [routes]: seconds from send and receive posted to the first byte on the links
    alone: Floats  # [links]: bytes/s for one message alone on the link
    shared: Floats  # [links]: bytes/s for several together
    latency: Floats  # [links]: seconds; part of ``delay``


def find_routes(cluster: Cluster, transport: Transport, pairs: Pairs) -> Routes:
    """Return the routes that the cluster's routing policy selects. Links are in the graph's edge order."""
    first, link = cluster.router().links_between(cluster.hosts, pairs.src, pairs.dst)
    return _make_routes(first.astype(np.int32, copy=False), link.astype(np.int32, copy=False), cluster, transport)


def _make_routes(first: Ints, link: Ints, cluster: Cluster, transport: Transport) -> Routes:
    alone, shared, latency = find_shortest_paths(cluster.graph).speeds
    delay = transport.overhead + _reduced(np.add, latency[link], first, 0.0)
    return Routes(first, link, delay, alone * transport.goodput, shared * transport.goodput, latency)


def _reduced(operation: np.ufunc, values: Floats, first_hop: Ints, empty: float) -> Floats:
    """Reduce the values of each route's hops by ``operation``. The result for a route without hops is ``empty``."""
    result, crossing = np.full(len(first_hop) - 1, empty), np.flatnonzero(np.diff(first_hop))
    if len(crossing):
        result[crossing] = operation.reduceat(values, first_hop[crossing])
    return result


def pieces(first_hop: Ints) -> Iterator[tuple[int, int]]:
    """Yield the bounds of consecutive ranges of routes, each with about ``HOPS_AT_ONCE`` hops."""
    cuts = np.searchsorted(first_hop, np.arange(0, int(first_hop[-1]) + 1, HOPS_AT_ONCE))
    yield from pairwise(np.unique(np.append(cuts, [0, len(first_hop) - 1])).tolist())


def alone_rates(routes: Routes) -> Floats:
    """Return each route's rate in bytes/s for a message that shares no link; infinity if no link limits it."""
    return _reduced(np.minimum, routes.alone[routes.hop_link], routes.first_hop, np.inf)


class SingleMessages(NamedTuple):
    """Boolean masks of the ranks and pairs that never have two messages in flight at once, on all channels together."""

    sends: Bools  # [ranks]
    receives: Bools  # [ranks]
    pair: Bools  # [pairs]


def one_at_a_time(schedule_plan: SchedulePlan) -> SingleMessages:
    """Return masks of the ranks and pairs of a plan that have at most one message in flight."""
    most, channels = schedule_plan.plan.most_at_once, schedule_plan.channels
    sent, received = (most(end).reshape(-1, channels).sum(axis=1) for end in ("source", "sink"))
    return SingleMessages(sent <= 1, received <= 1, _pairs_one_at_a_time(schedule_plan))


def cyclic_one_at_a_time(cyclic: SymmetricSchedule) -> SingleMessages:
    """Return masks of the ranks and pairs of a symmetric schedule that have at most one message in flight."""
    p, away, active = cyclic.world_size, distances(cyclic), find_active_steps(cyclic)
    sends, receiving = cyclic.kind == Kind.SEND, receives(cyclic.kind)
    alone = [_groups_one_at_a_time(active, which, np.zeros(which.sum(), np.int32), 1) for which in (sends, receiving)]
    by_distance = _groups_one_at_a_time(active, sends, np.searchsorted(away, cyclic.peer[sends]), len(away))
    return SingleMessages(np.repeat(alone[0], p), np.repeat(alone[1], p), np.tile(by_distance, p))


def _groups_one_at_a_time(active: ActiveSteps, chosen: Bools, group: Ints, groups: int) -> Bools:
    """Return a mask of the groups whose operations are all on one channel, in different steps; shape [groups].

    Only the operations in ``chosen`` count. ``group`` has the group number of each of them.
    """
    step, factor = active.of_row[chosen], len(active.channel) + 1
    in_step = np.unique(group.astype(np.int64) * factor + step) // factor
    on_channel = np.unique(group.astype(np.int64) * factor + active.channel[step]) // factor
    never_two = np.bincount(in_step, minlength=groups) == np.bincount(group, minlength=groups)
    return never_two & (np.bincount(on_channel, minlength=groups) <= 1)


def _pairs_one_at_a_time(schedule_plan: SchedulePlan) -> Bools:
    """Return a mask of the pairs whose messages all use one channel, and are all in different stages; shape [pairs]."""
    plan, channels = schedule_plan.plan, schedule_plan.channels
    source, route = plan.messages["source"], plan.messages["route"]
    is_single = np.ones(len(schedule_plan.pairs.src), np.bool_)
    if channels > 1:
        channel = plan.stages["agent"][source] % channels
        used = np.unique(route.astype(np.int64) * channels + channel) // channels
        is_single[used[1:][used[1:] == used[:-1]]] = False
    several = np.bincount(source, minlength=len(plan.stages))[source] > 1
    in_stage = np.sort(route[several].astype(np.int64) * len(plan.stages) + source[several])
    is_single[in_stage[1:][in_stage[1:] == in_stage[:-1]] // len(plan.stages)] = False
    return is_single


def private_links(singles: SingleMessages, pairs: Pairs, routes: Routes) -> Bools:
    """Return a mask of the links that never carry two messages at once; shape [links]."""
    numbers = np.arange(len(pairs.src), dtype=np.int32)
    counts = np.diff(routes.first_hop)
    hops = None if (counts == 1).all() else counts
    ends_and_singles = zip((*pairs, numbers), singles, strict=True)
    return np.logical_or.reduce([_crossed_by_one(ends, single, routes, hops) for ends, single in ends_and_singles])


def _crossed_by_one(ends: Ints, single: Bools, routes: Routes, hops: Ints | None) -> Bools:
    """Return a mask of the links that carry the messages of only one rank or pair, one at a time; shape [links].

    ``ends`` has the sender, the receiver or the pair of each route. ``single`` marks the ranks or pairs with one
    message at a time. ``hops`` is the number of links per route; None means one link each.
    """
    end = ends if hops is None else np.repeat(ends, hops)
    end_of_link = np.full(len(routes.alone), -1, np.int32)
    end_of_link[routes.hop_link] = end  # an arbitrary one of several
    several = np.zeros(len(end_of_link), np.bool_)
    several[routes.hop_link[end != end_of_link[routes.hop_link]]] = True
    return ~several & np.append(single, False)[end_of_link]


PAIR_BYTES, DISTINCT_BYTES = 12, 38  # of each pair of links, and of each distinct one
ROOM = 4  # pairs of links with the memory of a message


def make_link_records(routes: Routes, private: Bools, messages: int = 0) -> LinkRecords:
    """Return the kernel's records of these routes.

    ``private`` [links] marks links that never carry two messages at once. Raise TooLarge if the records of the routes
    and ``messages`` messages exceed the memory limit.
    """
    routes = without_idle_links(routes, private)
    alone, shared = np.minimum(routes.alone, UNLIMITED), np.minimum(routes.shared, UNLIMITED)
    counts = np.diff(routes.first_hop).astype(np.int64)
    records = np.zeros(len(counts), ROUTE)
    records["first_hop"], records["hops"], records["delay"] = routes.first_hop[:-1], counts, routes.delay
    records["first_link_pair"] = np.cumsum(counts**2) - counts**2
    records["alone_rate"] = alone_rates(routes._replace(alone=alone))
    hop_link_pair, link_pairs = _link_pairs(records, routes.hop_link, len(alone), messages)
    first_link_pair = np.searchsorted(link_pairs["src"], np.arange(len(alone))).astype(np.int32)
    return LinkRecords(records, routes.hop_link, hop_link_pair, link_pairs, first_link_pair, alone, shared)


def _check_number(routes: int, counts: LongInts, number: int, messages: int, links: int) -> None:
    room = max(0, allowed(Gigabyte.TOGETHER) - ROOM * messages)  # if all pairs are distinct
    most = room + max(0, room - links**2) * DISTINCT_BYTES // PAIR_BYTES  # with few links, many pairs are equal
    if number > most:
        times = (number + ROOM * messages) / allowed(Gigabyte.TOGETHER)
        raise TooLarge(
            f"the {routes:,} routes of {messages:,} messages have up to {int(counts.max()):,} links and share "
            f"{number:,} pairs of links; the limit is {most:,} pairs; {ways_out(times, SHORTER_ROUTES)}"
        )


def without_idle_links(routes: Routes, private: Bools) -> Routes:
    """Return the routes without the links that never limit a message.

    Unlimited links are removed. Of the private links, only the slowest one of each route remains, and even this one is
    removed if a shared link of the route is as slow.
    """
    is_kept = np.empty(len(routes.hop_link), np.bool_)
    for begin, end in pieces(routes.first_hop):
        is_kept[routes.first_hop[begin] : routes.first_hop[end]] = _hold_back(routes, private, begin, end)
    counts = np.append(0, np.cumsum(is_kept, dtype=np.int32))[routes.first_hop]
    return routes._replace(first_hop=counts, hop_link=routes.hop_link[is_kept])


def _hold_back(routes: Routes, private: Bools, begin: int, end: int) -> Bools:
    counts = np.diff(routes.first_hop[begin : end + 1])
    link = routes.hop_link[routes.first_hop[begin] : routes.first_hop[end]]
    first, route = routes.first_hop[begin:end] - routes.first_hop[begin], np.repeat(np.arange(end - begin), counts)
    most = np.where(private, routes.alone, np.maximum(routes.alone, routes.shared))[link]
    least = np.where(private, routes.alone, np.minimum(routes.alone, routes.shared))[link]
    order = np.lexsort((private[link], most, route))  # tightest link of each route first; of equal ones, a shared one
    tightest = np.zeros(len(link), np.bool_)
    tightest[order[first[counts > 0]]] = True
    is_kept: Bools = (~private[link] | tightest) & (least < np.inf)
    return is_kept


def _link_pairs(records: Records, hop_link: Ints, links: int, messages: int) -> tuple[Ints, Records]:
    """Return the number of each pair of links on each route, and a record for each pair."""
    counts = records["hops"]
    number = int((counts.astype(np.int64) ** 2).sum())
    _check_number(len(counts), counts, number, messages, links)
    distinct, hop_link_pair = number_distinct(_keys(records, hop_link, links, number), links**2)
    link_pairs = np.zeros(len(distinct), LINK_PAIR)
    np.floor_divide(distinct, max(1, links), out=link_pairs["src"], casting="unsafe")
    np.remainder(distinct, max(1, links), out=link_pairs["dst"], casting="unsafe")
    link_pairs["head"] = -1
    return hop_link_pair, link_pairs


def _keys(records: Records, hop_link: Ints, links: int, number: int) -> LongInts:
    """Return ``a * links + b`` for each ordered pair of links a and b on each route."""
    keys, counts = np.empty(number, np.int64), records["hops"]
    for hops in np.unique(counts[counts > 0]).tolist():  # all routes of one length at once
        alike = np.flatnonzero(counts == hops)
        for chosen in np.array_split(alike, len(alike) * hops**2 // HOPS_AT_ONCE + 1):
            crossed = hop_link[records["first_hop"][chosen][:, None] + np.arange(hops)].astype(np.int64)
            table = crossed[:, :, None] * links + crossed[:, None, :]
            keys[records["first_link_pair"][chosen][:, None] + np.arange(hops**2)] = table.reshape(-1, hops**2)
    return keys
