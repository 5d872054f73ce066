"""Routes written down as the kernel reads them, without the links that never hold a message back.

A message is under way only while its sender and its receiver are in the stages that post it. So a link is *private*
when all that crosses it comes from one rank that sends one message at a time, or goes to one that receives one at a
time, or is of one pair that has one message at a time.
"""

from typing import NamedTuple

import numpy as np

from collectives.budget import SHORTER_ROUTES, Gigabyte, allowed, ways_out
from collectives.errors import TooLarge
from collectives.schedule.rules import receives
from collectives.schedule.symmetric import SymmetricSchedule
from collectives.step import Kind
from collectives.transport import Transport
from simcomm.cluster.cluster import Cluster
from simcomm.cluster.routing import Router
from simcomm.compiled.kernel.arrays import (
    LINK_PAIR,
    ROUTE,
    UNLIMITED,
    Bools,
    Ints,
    LinkRecords,
    LongInts,
    Records,
    number_distinct,
)
from simcomm.compiled.planning.routes import HOPS_AT_ONCE, Pairs, Routes, alone_rates, find_routes, pieces
from simcomm.compiled.planning.schedule_plan import (
    ActiveSteps,
    SchedulePlan,
    distances,
    find_active_steps,
)


class SingleMessages(NamedTuple):
    """Which ranks and pairs never have two messages under way at once, over all their channels."""

    sends: Bools  # [ranks]
    receives: Bools  # [ranks]
    pair: Bools  # [pairs]


def one_at_a_time(found: SchedulePlan) -> SingleMessages:
    """Return who has one message at a time in a plan."""
    numbers = [found.plan.most_at_once(end).reshape(-1, found.channels).sum(axis=1) for end in ("source", "sink")]
    return SingleMessages(numbers[0] <= 1, numbers[1] <= 1, _pairs_one_at_a_time(found))


def cyclic_one_at_a_time(cyclic: SymmetricSchedule) -> SingleMessages:
    """Return who has one message at a time in a cyclic schedule."""
    p, away, active = cyclic.world_size, distances(cyclic), find_active_steps(cyclic)
    sends, receiving = cyclic.kind == Kind.SEND, receives(cyclic.kind)
    alone = [_groups_one_at_a_time(active, which, np.zeros(which.sum(), np.int32), 1) for which in (sends, receiving)]
    by_distance = _groups_one_at_a_time(active, sends, np.searchsorted(away, cyclic.peer[sends]), len(away))
    return SingleMessages(np.repeat(alone[0], p), np.repeat(alone[1], p), np.tile(by_distance, p))


def _groups_one_at_a_time(active: ActiveSteps, chosen: Bools, group: Ints, groups: int) -> Bools:
    """Return which groups of the chosen operations are on one channel, and have never two in one of its steps."""
    step, factor = active.of_row[chosen], len(active.channel) + 1
    in_step = np.unique(group.astype(np.int64) * factor + step) // factor
    on_channel = np.unique(group.astype(np.int64) * factor + active.channel[step]) // factor
    never_two = np.bincount(in_step, minlength=groups) == np.bincount(group, minlength=groups)
    return never_two & (np.bincount(on_channel, minlength=groups) <= 1)


def _pairs_one_at_a_time(found: SchedulePlan) -> Bools:
    """Return which pairs have one message at a time: on one channel only, and there never two in a stage."""
    plan, channels = found.plan, found.channels
    source, route = plan.messages["source"], plan.messages["route"]
    one = np.ones(len(found.pairs.src), np.bool_)
    if channels > 1:
        channel = plan.stages["agent"][source] % channels
        used = np.unique(route.astype(np.int64) * channels + channel) // channels
        one[used[1:][used[1:] == used[:-1]]] = False
    several = np.bincount(source, minlength=len(plan.stages))[source] > 1
    in_stage = np.sort(route[several].astype(np.int64) * len(plan.stages) + source[several])
    one[in_stage[1:][in_stage[1:] == in_stage[:-1]] // len(plan.stages)] = False
    return one


def private_links(one: SingleMessages, pairs: Pairs, routes: Routes) -> Bools:
    """Return which links carry one message at a time; shape [links]."""
    numbers = np.arange(len(pairs.src), dtype=np.int32)
    counts = np.diff(routes.first_hop)
    hops = None if (counts == 1).all() else counts
    private = [_crossed_by_one(ends, single, routes, hops) for ends, single in zip((*pairs, numbers), one, strict=True)]
    return np.logical_or.reduce(private)


def _crossed_by_one(ends: Ints, single: Bools, routes: Routes, hops: Ints | None) -> Bools:
    """Return the links whose routes all have the same one of these ends, one that has one message at a time.

    ``hops`` says how many links each route has; None: each has one.
    """
    end = ends if hops is None else np.repeat(ends, hops)
    one = np.full(len(routes.alone), -1, np.int32)
    one[routes.hop_link] = end  # of several, any
    several = np.zeros(len(one), np.bool_)
    several[routes.hop_link[end != one[routes.hop_link]]] = True
    return ~several & np.append(single, False)[one]


PAIR_BYTES, DISTINCT_BYTES = 12, 38  # of each pair, and of each that is not the same as another
ROOM = 4  # of such pairs, that a message takes
SAMPLED, LEAST_SAMPLED = 2048, 16  # routes that are looked at first, where there are so many times as many


def make_link_records(routes: Routes, private: Bools, messages: int = 0) -> LinkRecords:
    """Return the records of routes; ``private`` [links] marks links that never carry two messages at once.

    Raises TooLarge for more than there is memory for beside so many ``messages``.
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


def check_some_routes(cluster: Cluster, transport: Transport, router: Router, pairs: Pairs, messages: int) -> None:
    """Raise TooLarge where some of very many routes say that all have far too many pairs of links that messages share.

    A link is surely shared that two routes cross which have no end in common.
    """
    if len(pairs.src) < LEAST_SAMPLED * SAMPLED:
        return
    chosen = np.random.default_rng(0).choice(len(pairs.src), SAMPLED, replace=False)  # drawn, as trees repeat
    some = Pairs(pairs.src[chosen], pairs.dst[chosen])
    routes = find_routes(cluster, transport, some, router)
    one = np.ones(cluster.world_size, np.bool_)
    private = private_links(SingleMessages(one, one, np.ones(SAMPLED, np.bool_)), some, routes)
    holds = ~private & (np.minimum(routes.alone, routes.shared) < np.inf)
    route = np.repeat(np.arange(SAMPLED), np.diff(routes.first_hop))
    counts = np.bincount(route, holds[routes.hop_link], SAMPLED).astype(np.int64)
    quarters = (counts**2).reshape(4, -1).sum(axis=1) * (4 * len(pairs.src) // SAMPLED)
    number = int(quarters.min())  # no quarter is large because of one route
    _check_number(len(pairs.src), counts, number, messages, len(routes.alone))


def _check_number(routes: int, counts: LongInts, number: int, messages: int, links: int) -> None:
    """Raise TooLarge for too many pairs of so many links on so many routes beside so many messages."""
    room = max(0, allowed(Gigabyte.TOGETHER) - ROOM * messages)  # where no two are alike
    most = room + max(0, room - links**2) * DISTINCT_BYTES // PAIR_BYTES  # of so few links many pairs are the same
    if number > most:
        times = (number + ROOM * messages) / allowed(Gigabyte.TOGETHER)
        raise TooLarge(
            f"{routes:,} routes with up to {int(counts.max()):,} links that messages share have {number:,} pairs "
            f"of links beside {messages:,} messages; up to {most:,} will do; {ways_out(times, SHORTER_ROUTES)}"
        )


def without_idle_links(routes: Routes, private: Bools) -> Routes:
    """Return the routes without links that hold no message back, whatever else is under way.

    These are links of infinite capacity and, among private ones, all but the tightest of a route, and that one too
    where another link of the route lets no message go faster.
    """
    kept = np.empty(len(routes.hop_link), np.bool_)
    for begin, end in pieces(routes.first_hop):
        kept[routes.first_hop[begin] : routes.first_hop[end]] = _hold_back(routes, private, begin, end)
    counts = np.append(0, np.cumsum(kept, dtype=np.int32))[routes.first_hop]
    return routes._replace(first_hop=counts, hop_link=routes.hop_link[kept])


def _hold_back(routes: Routes, private: Bools, begin: int, end: int) -> Bools:
    """Return which hops of some routes, from ``begin`` to before ``end``, may hold a message back."""
    counts = np.diff(routes.first_hop[begin : end + 1])
    link = routes.hop_link[routes.first_hop[begin] : routes.first_hop[end]]
    first, route = routes.first_hop[begin:end] - routes.first_hop[begin], np.repeat(np.arange(end - begin), counts)
    most = np.where(private, routes.alone, np.maximum(routes.alone, routes.shared))[link]
    least = np.where(private, routes.alone, np.minimum(routes.alone, routes.shared))[link]
    order = np.lexsort((private[link], most, route))  # of each route the tightest first, of equal ones a shared one
    tightest = np.zeros(len(link), np.bool_)
    tightest[order[first[counts > 0]]] = True
    kept: Bools = (~private[link] | tightest) & (least < np.inf)
    return kept


def _link_pairs(records: Records, hop_link: Ints, links: int, messages: int) -> tuple[Ints, Records]:
    """Return the number of the link pair of each two hops of each route, and the link pairs."""
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
    """Return a key for each two hops of each route, which says their links."""
    keys, counts = np.empty(number, np.int64), records["hops"]
    for hops in np.unique(counts[counts > 0]).tolist():  # routes of one length at once: there are few lengths
        alike = np.flatnonzero(counts == hops)
        for chosen in np.array_split(alike, len(alike) * hops**2 // HOPS_AT_ONCE + 1):
            crossed = hop_link[records["first_hop"][chosen][:, None] + np.arange(hops)].astype(np.int64)
            table = crossed[:, :, None] * links + crossed[:, None, :]
            keys[records["first_link_pair"][chosen][:, None] + np.arange(hops**2)] = table.reshape(-1, hops**2)
    return keys
