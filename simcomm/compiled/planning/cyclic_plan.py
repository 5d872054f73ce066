"""The plan of a cyclic schedule, written down at once: every rank's stages and messages are the next one's, shifted."""

from typing import NamedTuple

import numpy as np

from collectives.schedule.symmetric import SymmetricSchedule
from collectives.schedule.table import order_by_step, runs_of_steps
from collectives.step import Kind
from simcomm.compiled.kernel.arrays import NO_FLOATS, STAGE, Floats, Ints, Plan, Records
from simcomm.compiled.planning.routes import Pairs
from simcomm.compiled.planning.schedule_plan import ChunkSizes, SchedulePlan, make_messages


def distances(cyclic: SymmetricSchedule) -> Ints:
    """Return how far up the ring messages go, each distance once, in ascending order."""
    return np.unique(cyclic.peer[cyclic.kind == Kind.SEND])


def cyclic_pairs(cyclic: SymmetricSchedule) -> Pairs:
    """Return all pairs that send: number ``len(distances) * r + k`` is from rank r to the one ``distances[k]`` up."""
    away, ranks = distances(cyclic), np.arange(cyclic.world_size, dtype=np.int32)
    return Pairs(np.repeat(ranks, len(away)), cyclic.ranks_at(away, ranks).T.reshape(-1))


class ActiveSteps(NamedTuple):
    """The steps in which a channel does something: of each of them every rank has one stage.

    They are in the order of steps, those of one step in the order of channels. Stage ``world_size * s + r`` is rank r's
    in active step s.
    """

    of_row: Ints  # [rows of the schedule]
    channel: Ints  # [active steps]


def find_active_steps(cyclic: SymmetricSchedule) -> ActiveSteps:
    """Return the active steps of a schedule."""
    keys = cyclic.step.astype(np.int64) * cyclic.channels + cyclic.channel
    distinct, of_row = np.unique(keys, return_inverse=True)
    return ActiveSteps(of_row.astype(np.int32), (distinct % cyclic.channels).astype(np.int32))


def plan_cyclic(cyclic: SymmetricSchedule, sizes: ChunkSizes) -> SchedulePlan:
    """Return the plan of a cyclic schedule without empty messages.

    The messages that a stage sends have numbers one after the other: they begin together, and caches need that.
    Raises RuntimeError for a schedule with empty messages.
    """
    p, sends, active = cyclic.world_size, np.flatnonzero(cyclic.kind == Kind.SEND), find_active_steps(cyclic)
    nbytes = _bytes_by_rank(cyclic, sends, sizes)
    if not (nbytes > 0).all():
        raise RuntimeError("a cyclic plan has no place for empty messages: make a table of the schedule")
    ranks, away, runs = np.arange(p, dtype=np.int32), distances(cyclic), runs_of_steps(active.of_row[sends])
    messages = make_messages(
        order_by_step(active.of_row[sends, None] * p + ranks, runs),
        order_by_step(cyclic.ranks_at(cyclic.peer[sends], ranks) + active.of_row[cyclic.match[sends], None] * p, runs),
        order_by_step(np.searchsorted(away, cyclic.peer[sends]).astype(np.int32)[:, None] + len(away) * ranks, runs),
        order_by_step(nbytes, runs),
    )
    ops, per_stage = _ops(cyclic, sends, active)
    first_stage, stages = _stages(cyclic, active, per_stage)
    plan = Plan(stages, messages, ops, _cost(cyclic, active, sizes), NO_FLOATS, first_stage)
    return SchedulePlan(plan, cyclic_pairs(cyclic), cyclic.channels, None)


def _bytes_by_rank(cyclic: SymmetricSchedule, rows: Ints, sizes: ChunkSizes) -> Floats:
    """Return the bytes that each of these entries reads or writes on each rank; [rows, ranks]."""
    places = cyclic.places(np.arange(cyclic.world_size, dtype=np.int32))
    first = cyclic.read.select(rows).on(places, cyclic.radix)
    return sizes.nbytes(first, np.broadcast_to(cyclic.count[rows, None], first.shape))


def _ops(cyclic: SymmetricSchedule, sends: Ints, active: ActiveSteps) -> tuple[Ints, Ints]:
    """Return the messages of each stage, and how many a stage of each active step has."""
    p, ranks = cyclic.world_size, np.arange(cyclic.world_size, dtype=np.int32)
    step_of_send = active.of_row[sends]
    in_step = np.bincount(step_of_send, minlength=len(active.channel)).astype(np.int32)
    before = np.cumsum(in_step) - in_step
    first, stride = np.zeros((2, len(cyclic.kind)), np.int32)  # rank r's message of a send is first + stride * r
    first[sends] = before[step_of_send] * p + np.arange(len(sends)) - before[step_of_send]
    stride[sends] = in_step[step_of_send]
    rows = np.flatnonzero(cyclic.match >= 0)
    here = cyclic.kind[rows] == Kind.SEND
    sender = np.where(here, rows, cyclic.match[rows])
    message = cyclic.ranks_at(np.where(here, 0, cyclic.peer[rows]), ranks)
    message *= stride[sender][:, None]
    message += first[sender][:, None]
    step = active.of_row[rows]
    per_stage = np.bincount(step, minlength=len(active.channel))
    return order_by_step(message, runs_of_steps(step)), per_stage.astype(np.int32)


def _stages(cyclic: SymmetricSchedule, active: ActiveSteps, per_stage: Ints) -> tuple[Ints, Records]:
    """Return the first stage of each agent, and a record for each stage: of each active step one of each rank."""
    p, channels, ranks = cyclic.world_size, cyclic.channels, np.arange(cyclic.world_size, dtype=np.int32)
    first = np.full((p, channels), -1, np.int32)
    following = np.full((len(active.channel), p), -1, np.int32)
    for channel in range(channels):
        mine = np.flatnonzero(active.channel == channel)
        following[mine[:-1]] = mine[1:, None] * p + ranks
        first[:, channel] = mine[0] * p + ranks if len(mine) else -1
    stages = np.zeros(len(active.channel) * p + 1, STAGE)
    stages["first_op"][1:] = np.cumsum(np.repeat(per_stage, p))
    stages["agent"][:-1] = (ranks * channels + active.channel[:, None]).reshape(-1)
    stages["following"] = np.append(following.reshape(-1), -1)
    return first.reshape(-1), stages


def _cost(cyclic: SymmetricSchedule, active: ActiveSteps, sizes: ChunkSizes) -> Floats:
    """Return the seconds that each stage computes, its operations in order; empty where reducing costs nothing."""
    if sizes.gamma == 0:
        return NO_FLOATS
    rows = np.flatnonzero(cyclic.kind > Kind.RECV)
    seconds, step = sizes.gamma * _bytes_by_rank(cyclic, rows, sizes), active.of_row[rows]
    cost = np.zeros((len(active.channel), cyclic.world_size))
    nth = np.arange(len(rows)) - np.searchsorted(step, step)  # of its active step
    for k in range(int(nth.max(initial=-1)) + 1):
        cost[step[nth == k]] += seconds[nth == k]
    return cost.reshape(-1)


def sent_messages(cyclic: SymmetricSchedule, sizes: ChunkSizes) -> int:
    """Return how many messages of a cyclic schedule are sent: empty ones are not."""
    sends, p = np.flatnonzero(cyclic.kind == Kind.SEND), cyclic.world_size
    table = sizes.offsets(cyclic.chunks + cyclic.scratch)
    base, shifted = cyclic.read.base[sends], cyclic.read.is_shifted[sends]
    number = np.where(table[base + cyclic.count[sends]] > table[base], p, 0)
    if shifted.any():
        filled = cyclic.by_cycle(np.diff(table) > 0).sum(axis=1)
        number[shifted] = filled[cyclic.cycle()[sends][shifted]]
    return int(number.sum())
