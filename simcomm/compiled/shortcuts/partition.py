"""Ranks, links and pairs sorted into classes of like ones, and the plan in which one of each class stands for all.

The partition is *equitable*: agents of a class compute the same and have equally many pairs of each class to and from
them, links of a class have the same capacities and latency and carry equally many pairs of each class, and pairs of a
class have the same messages, ends of the same classes and links of the same classes on their route. Then all members
of a class have the same times and rates, by induction over the events: what is under way is always a union of classes,
so that the links of a class are shared alike, and each round of progressive filling fixes whole classes.

It is found by hashes (color refinement: Weisfeiler, Leman, 1968), and then proved by counting.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from simcomm.compiled.kernel.arrays import NO_FLOATS, Ints, LongInts, Plan, Records, number_distinct
from simcomm.compiled.planning.routes import Routes
from simcomm.compiled.planning.schedule_plan import make_messages, make_stages
from simcomm.compiled.shortcuts.labelled_pairs import LabelledPairs
from simcomm.hashing import hash_numbers

Hashes = npt.NDArray[np.uint64]
SLOT_BITS = 16  # of a hash that tell a few distinct ones apart
ROWS_AT_ONCE = 100_000  # of that table that are compared at a time, which bounds the memory for that


class Incidence(NamedTuple):
    """Which pair meets which agent or link, each as often as they meet."""

    where: Ints  # agents or links
    pair: Ints


class Partition(NamedTuple):
    """The class of everything, numbered from 0 on."""

    agents: Ints
    links: Ints
    pairs: Ints


def find_partition(pairs: LabelledPairs, routes: Routes) -> Partition | None:
    """Return an equitable partition, or None where none makes four times fewer pairs, which its plan is worth.

    Raises RuntimeError should hashes collide, so that the classes found are not alike.
    """
    hops = _hops(pairs, routes)
    found = _refine(pairs, routes, hops)
    if found is not None and not _is_equitable(pairs, routes, hops, found):
        raise RuntimeError("the classes of the quotient are not alike: hashes collide")
    return found


def _hops(pairs: LabelledPairs, routes: Routes) -> Incidence:
    """Return each link that each pair crosses."""
    counts = np.diff(routes.first_hop)[pairs.route]
    pair = np.repeat(np.arange(len(pairs.route), dtype=np.int32), counts)
    starts = np.cumsum(counts) - counts
    at = routes.first_hop[pairs.route][pair] + np.arange(len(pair)) - starts[pair]
    return Incidence(routes.hop_link[at], pair)


def _refine(given: LabelledPairs, routes: Routes, hops: Incidence) -> Partition | None:
    """Return the classes by color refinement: split them until a round splits none; None where too few remain alike."""
    agents = given.kind
    figures = (routes.alone, routes.shared, routes.latency)
    hashes = [hash_numbers(figure.view(np.uint64) + np.uint64(10 + k)) for k, figure in enumerate(figures)]
    links = _number(hash_numbers(hashes[0] + hashes[1]) + hashes[2])
    every = np.arange(len(given.src), dtype=np.int32)
    sides = Incidence(given.src, every), Incidence(given.dst, every)
    before = -1
    # where more rounds are needed hardly anything is alike
    for _ in range(40):
        on_route = _sum_by(_salt(links[hops.where], 3), hops.pair, len(every))
        ends = _salt(agents[given.src], 1) + _salt(agents[given.dst], 2)
        pairs = _number(hash_numbers(on_route + ends) + _salt(given.label, 4))
        if len(pairs) and 4 * (int(pairs.max()) + 1) > len(pairs):
            return None
        classes = int(pairs.max(initial=0)) + int(agents.max(initial=0)) + int(links.max(initial=0))
        if classes == before:
            return Partition(agents, links, pairs)
        before = classes
        met = [_sum_by(_salt(pairs[side.pair], 5 + k), side.where, len(agents)) for k, side in enumerate(sides)]
        agents = _number(hash_numbers(met[0]) + met[1] + _salt(agents, 7))
        links = _number(hash_numbers(_sum_by(_salt(pairs[hops.pair], 8), hops.where, len(links))) + _salt(links, 9))
    return None


def _salt(numbers: Ints, salt: int) -> Hashes:
    """Return hashes of numbers from 0 on, other ones for each salt."""
    each = np.arange(1, int(numbers.max(initial=-1)) + 2, dtype=np.uint64)
    return hash_numbers(hash_numbers(each) + np.uint64(salt))[numbers]


def _sum_by(hashes: Hashes, where: Ints, size: int) -> Hashes:
    """Return the sum of the hashes that belong to each place; it does not depend on their order."""
    halves = (hashes & np.uint64(0xFFFFFFFF), hashes >> np.uint64(32))
    low, high = (np.bincount(where, weights=half.astype(np.float64), minlength=size) for half in halves)
    return hash_numbers(low.view(np.uint64)) + high.view(np.uint64)


def _number(hashes: Hashes) -> Ints:
    """Return for each hash its number among the distinct ones, in any order."""
    slots = (hashes >> np.uint64(64 - SLOT_BITS)).astype(np.int64)
    in_slot = np.zeros(1 << SLOT_BITS, np.uint64)
    in_slot[slots] = hashes
    if np.array_equal(in_slot[slots], hashes):  # few are distinct, each in a slot of its own: no need to sort
        return number_distinct(slots, 1 << SLOT_BITS)[1]
    return np.unique(hashes, return_inverse=True)[1].astype(np.int32)


def _is_equitable(pairs: LabelledPairs, routes: Routes, hops: Incidence, found: Partition) -> bool:
    """Return whether the partition is equitable, by counting: no hash is trusted."""
    figures = (routes.alone, routes.shared, routes.latency)
    ends = (pairs.label, found.agents[pairs.src], found.agents[pairs.dst])
    return (
        _same_in_classes(found.agents, pairs.kind)
        and all(_same_in_classes(found.links, figure) for figure in figures)
        and all(_same_in_classes(found.pairs, end) for end in ends)
        and _meet_alike(found.pairs, Incidence(hops.pair, found.links[hops.where]))
        and _meet_alike(found.agents, Incidence(pairs.src, found.pairs))
        and _meet_alike(found.agents, Incidence(pairs.dst, found.pairs))
        and _meet_alike(found.links, Incidence(hops.where, found.pairs[hops.pair]))
    )


def one_of_each(classes: Ints) -> LongInts:
    """Return the first member of each class.

    >>> one_of_each(np.array([1, 0, 1])).tolist()
    [1, 0]
    """
    first = np.empty(int(classes.max(initial=-1)) + 1, np.int64)
    first[classes[::-1]] = np.arange(len(classes))[::-1]
    return first


def _same_in_classes(classes: Ints, values: npt.NDArray[np.generic]) -> bool:
    """Return whether all members of each class have the same value."""
    return np.array_equal(values, values[one_of_each(classes)[classes]])


def _meet_alike(classes: Ints, met: Incidence) -> bool:
    """Return whether all members of a class meet equally many of each other class, which ``met.pair`` holds."""
    width, like = int(met.pair.max(initial=0)) + 1, one_of_each(classes)[classes]
    keys = met.where.astype(np.int64)
    keys *= width
    keys += met.pair
    # of so many numbers for each incidence all are counted in one table
    if len(classes) * width <= 4 * len(keys):
        table = np.bincount(keys, minlength=len(classes) * width).reshape(-1, width)
        parts = range(0, len(table), ROWS_AT_ONCE)
        return all(np.array_equal(table[at : at + ROWS_AT_ONCE], table[like[at : at + ROWS_AT_ONCE]]) for at in parts)
    keys.sort()
    where, what = np.divmod(keys, width)
    bounds = np.searchsorted(where, np.arange(len(classes) + 1))
    counts = np.diff(bounds)
    if not np.array_equal(counts, counts[like]):
        return False
    place = np.arange(len(keys)) - np.repeat(bounds[:-1], counts)
    return np.array_equal(what, what[np.repeat(bounds[:-1][like], counts) + place])


class Quotient(NamedTuple):
    """A plan over classes and its routes, one of each class of pairs."""

    plan: Plan
    routes: Routes
    agents: Ints  # [agents]: the class of each, which is its number in the plan


def make_quotient(pairs: LabelledPairs, routes: Routes, partition: Partition) -> Quotient:
    """Return what stands for all. The partition must be equitable."""
    agents, chosen = one_of_each(partition.agents), one_of_each(partition.pairs)
    computings = pairs.computings.select(pairs.kind[agents])
    counts = np.diff(computings.first)
    first_stage, stages = make_stages(np.repeat(np.arange(len(agents), dtype=np.int32), counts), len(agents))
    messages = _messages(pairs, partition, chosen, computings.first)
    ends = np.concatenate([messages["source"], messages["sink"]])
    order = np.argsort(ends, kind="stable")
    stages["first_op"] = np.searchsorted(ends[order], np.arange(len(stages)))
    ops = (order % max(1, len(messages))).astype(np.int32)
    plan = Plan(stages, messages, ops, computings.rows[:, 0].copy(), NO_FLOATS, first_stage)
    return Quotient(plan, _routes(pairs, routes, partition, chosen), partition.agents)


def _messages(pairs: LabelledPairs, partition: Partition, chosen: LongInts, first: LongInts) -> Records:
    """Return the messages of the chosen pairs, one of each class, between the stages of the classes at their ends."""
    lists = pairs.messages.select(pairs.label[chosen])
    route = np.repeat(np.arange(len(chosen), dtype=np.int32), np.diff(lists.first))
    ends = (partition.agents[pairs.src[chosen]], partition.agents[pairs.dst[chosen]])
    source, sink = (first[end][route] + lists.rows[:, k].astype(np.int32) for k, end in enumerate(ends))
    return make_messages(source, sink, route, lists.rows[:, 2])


def _routes(pairs: LabelledPairs, routes: Routes, partition: Partition, chosen: LongInts) -> Routes:
    """Return the routes of the chosen pairs over classes of links; a hop weighs as many of a class as share a link."""
    links, size, of_class = one_of_each(partition.links), np.bincount(partition.links), np.bincount(partition.pairs)
    route = pairs.route[chosen]
    counts = np.diff(routes.first_hop)[route]
    pair = np.repeat(np.arange(len(chosen)), counts)
    at = np.repeat(routes.first_hop[route] - (np.cumsum(counts) - counts), counts) + np.arange(len(pair))
    keys, crossed = np.unique(pair * len(links) + partition.links[routes.hop_link[at]], return_counts=True)
    which, link = np.divmod(keys, len(links))
    first = np.searchsorted(which, np.arange(len(chosen) + 1)).astype(np.int32)
    weight = crossed * of_class[which] // size[link]  # by counting from both sides a whole number
    return Routes(
        first, link.astype(np.int32), weight.astype(np.int32), routes.delay[route],
        routes.alone[links], routes.shared[links], routes.latency[links],
    )  # fmt: skip
