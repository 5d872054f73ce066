"""The plan of a folded program: one agent, link and pair stands for each class, and the engine runs that."""

from typing import NamedTuple

import numpy as np

from simcomm.compiled.demand import message_records, stage_records
from simcomm.compiled.plan import Plan
from simcomm.compiled.routes import Ints, Records, Routes
from simcomm.compiled.shortcuts.partition import Partition
from simcomm.compiled.shortcuts.traffic import Sequences, Traffic, taken


class Quotient(NamedTuple):
    """A plan over classes and its routes, one a class of pairs."""

    plan: Plan
    routes: Routes
    agents: Ints  # the class of each agent


def quotient(traffic: Traffic, routes: Routes, partition: Partition) -> Quotient:
    """What stands for all. The partition must be equitable."""
    agents = np.unique(partition.agents, return_index=True)[1]  # one of each class
    pairs = np.unique(partition.pairs, return_index=True)[1]
    computings = taken(traffic.computings, traffic.agent[agents])
    counts = np.diff(computings.first)
    first_stage, stages = stage_records(np.repeat(np.arange(len(agents), dtype=np.int32), counts), len(agents))
    messages = _messages(traffic, partition, pairs, computings.first)
    ends = np.concatenate([messages["source"], messages["sink"]])
    order = np.argsort(ends, kind="stable")
    stages["first_op"] = np.searchsorted(ends[order], np.arange(len(stages)))
    ops = (order % max(1, len(messages))).astype(np.int32)
    plan = Plan(stages, messages, ops, computings.rows[:, 0].copy(), np.zeros(0), first_stage)
    return Quotient(plan, _routes(traffic, routes, partition, pairs), partition.agents)


def _messages(traffic: Traffic, partition: Partition, pairs: Ints, first: Ints) -> Records:
    """The messages of one pair of each class, between the stages of the classes at its ends."""
    lists: Sequences = taken(traffic.messages, traffic.label[pairs])
    route = np.repeat(np.arange(len(pairs), dtype=np.int32), np.diff(lists.first))
    ends = (partition.agents[traffic.src[pairs]], partition.agents[traffic.dst[pairs]])
    source, sink = (first[end][route] + lists.rows[:, k].astype(np.int64) for k, end in enumerate(ends))
    return message_records(source, sink, route, lists.rows[:, 2])


def _routes(traffic: Traffic, routes: Routes, partition: Partition, pairs: Ints) -> Routes:
    """Classes of links that a pair of each class crosses, each with how many of the class are on one link."""
    links, size = np.unique(partition.links, return_index=True, return_counts=True)[1:]
    of_class = np.bincount(partition.pairs)
    chosen = traffic.route[pairs]
    counts = np.diff(routes.first_hop)[chosen]
    pair = np.repeat(np.arange(len(pairs)), counts)
    at = np.repeat(routes.first_hop[chosen] - (np.cumsum(counts) - counts), counts) + np.arange(len(pair))
    keys, crossed = np.unique(pair * len(links) + partition.links[routes.hop_link[at]], return_counts=True)
    which, link = np.divmod(keys, len(links))
    first = np.searchsorted(which, np.arange(len(pairs) + 1)).astype(np.int32)
    weight = crossed * of_class[which] // size[link]  # by counting from both sides a whole number
    return Routes(
        first, link.astype(np.int32), weight.astype(np.int32), routes.delay[chosen],
        routes.alone[links], routes.shared[links], routes.latency[links],
    )  # fmt: skip
