"""The plan in which one agent, link and pair of each class stands for all of it; the kernel runs that."""

from typing import NamedTuple

import numpy as np

from simcomm.compiled.kernel.arrays import NO_FLOATS, Ints, LongInts, Plan, Records
from simcomm.compiled.planning.routes import Routes
from simcomm.compiled.planning.schedule_plan import make_messages, make_stages
from simcomm.compiled.shortcuts.labelled_pairs import LabelledPairs
from simcomm.compiled.shortcuts.partition import Partition, one_of_each


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
