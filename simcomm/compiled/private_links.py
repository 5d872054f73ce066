"""Links that never carry two messages at once, whatever the times: the program does not let it happen.

A message is under way only while its sender and its receiver are in the stages that post it. So a link is *private*
when all that crosses it comes from one rank that has one message to send at a time, or goes to one that has one to
receive, or is of one pair that has one message at a time.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from collectives.schedule.cyclic import CyclicSchedule
from collectives.step import Kind
from simcomm.compiled.demand import Demand, most_at_once
from simcomm.compiled.pairs import Pairs
from simcomm.compiled.plan import Plan
from simcomm.compiled.routes import Ints, Routes

Bools = npt.NDArray[np.bool_]


class Singles(NamedTuple):
    """Who has one message at a time."""

    sends: Bools  # [ranks]
    receives: Bools  # [ranks]
    pair: Bools  # [pairs]


def singles(demand: Demand) -> Singles:
    """Who has one message at a time, over all channels."""
    at_once = [most_at_once(demand.plan, end).reshape(-1, demand.channels).sum(axis=1) for end in ("source", "sink")]
    return Singles(at_once[0] <= 1, at_once[1] <= 1, _single_pairs(demand))


def cyclic_singles(cyclic: CyclicSchedule, pairs: Pairs) -> Singles:
    """The same of a cyclic program and its pairs."""
    sends, receives = cyclic.kind == Kind.SEND, (cyclic.kind == Kind.RECV) | (cyclic.kind == Kind.RECV_REDUCE)
    one_sent, one_received = (len(np.unique(cyclic.step[which])) == which.sum() for which in (sends, receives))
    ways = np.unique(cyclic.step[sends].astype(np.int64) * cyclic.world_size + cyclic.peer[sends])
    all_ranks = np.ones(cyclic.world_size, np.bool_)
    one_a_pair = len(ways) == sends.sum()
    return Singles(all_ranks & one_sent, all_ranks & one_received, np.full(len(pairs.src), one_a_pair))


def _single_pairs(demand: Demand) -> Bools:
    """Which pairs have one message at a time: on one channel only, and there never two in a stage."""
    plan: Plan = demand.plan
    source, route = plan.messages["source"], plan.messages["route"]
    single = np.ones(len(demand.pairs.src), np.bool_)
    if demand.channels > 1:
        channel = plan.stages["agent"][source] % demand.channels
        ways = np.unique(route.astype(np.int64) * demand.channels + channel) // demand.channels
        single[ways[1:][ways[1:] == ways[:-1]]] = False
    several = np.bincount(source, minlength=len(plan.stages))[source] > 1
    ways = np.sort(route[several].astype(np.int64) * len(plan.stages) + source[several])
    single[ways[1:][ways[1:] == ways[:-1]] // len(plan.stages)] = False
    return single


def private_links(singles: Singles, pairs: Pairs, routes: Routes) -> Bools:
    """Which links carry one message at a time."""
    numbers = np.arange(len(pairs.src), dtype=np.int32)
    alone = [_only(ends, single, routes) for ends, single in zip((*pairs, numbers), singles, strict=True)]
    return np.logical_or.reduce(alone)


def _only(ends: Ints, single: Bools, routes: Routes) -> Bools:
    """Whether all routes over a link have the same end, and it is one with one message at a time."""
    end = np.repeat(ends, np.diff(routes.first_hop))
    lowest, highest = np.full(len(routes.alone), len(single)), np.full(len(routes.alone), -1)
    np.minimum.at(lowest, routes.hop_link, end)
    np.maximum.at(highest, routes.hop_link, end)
    alone = (lowest == highest) & (highest >= 0)
    return alone & np.append(single, False)[np.where(alone, highest, -1)]
