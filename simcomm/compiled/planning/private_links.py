"""Links that never carry two messages at once, whatever the times: the schedule does not let it happen.

A message is under way only while its sender and its receiver are in the stages that post it. So a link is *private*
when all that crosses it comes from one rank that sends one message at a time, or goes to one that receives one at a
time, or is of one pair that has one message at a time.
"""

from typing import NamedTuple

import numpy as np

from collectives.schedule.matching import receives
from collectives.schedule.symmetric import SymmetricSchedule
from collectives.step import Kind
from simcomm.compiled.kernel.arrays import Bools, Ints
from simcomm.compiled.planning.cyclic_plan import ActiveSteps, distances, find_active_steps
from simcomm.compiled.planning.routes import Pairs, Routes
from simcomm.compiled.planning.schedule_plan import SchedulePlan, most_at_once


class SingleMessages(NamedTuple):
    """Which ranks and pairs never have two messages under way at once, over all their channels."""

    sends: Bools  # [ranks]
    receives: Bools  # [ranks]
    pair: Bools  # [pairs]


def one_at_a_time(found: SchedulePlan) -> SingleMessages:
    """Return who has one message at a time in a plan."""
    numbers = [most_at_once(found.plan, end).reshape(-1, found.channels).sum(axis=1) for end in ("source", "sink")]
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
