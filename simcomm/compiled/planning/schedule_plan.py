"""Plan a schedule on a buffer: its stages, its messages with sizes, and the pairs of ranks that exchange messages.

A symmetric schedule is planned for all ranks at once, because the stages and messages of consecutive ranks are equal
except for a shift by one rank.
"""

from typing import NamedTuple

import numpy as np

from collectives.schedule.schedule import OperationColumns, StepTable, order_by_step, runs_of_steps
from collectives.schedule.symmetric import SymmetricSchedule
from collectives.step import Kind, offset
from simcomm.compiled.kernel.arrays import (
    MESSAGE,
    NO_FLOATS,
    STAGE,
    Floats,
    Ints,
    LongInts,
    Plan,
    Records,
    number_distinct,
)


class Pairs(NamedTuple):
    """The pairs of ranks that exchange messages, one pair per direction. All messages of a pair take the same route."""

    src: Ints
    dst: Ints


class ChunkSizes(NamedTuple):
    """The sizes of chunks in bytes. ``gamma`` is the time to reduce one byte, in seconds."""

    chunks: int
    elements: int  # of the buffer
    itemsize: int
    gamma: float  # seconds per byte

    def nbytes(self, chunk: Ints, count: Ints) -> Floats:
        """Return the bytes of ``count`` consecutive chunks that start with ``chunk``. Both arguments are arrays."""
        end = chunk + count
        table = self.offsets(int(end.max(initial=0))) * float(self.itemsize)  # integers below 2^53, so exact
        sizes: Floats = table[end]
        sizes -= table[chunk]
        return sizes

    def offsets(self, last: int) -> LongInts:
        """Return the index of the first element of each chunk from 0 to ``last``."""
        return offset(np.arange(last + 1, dtype=np.int64), self.elements, self.chunks)


class SchedulePlan(NamedTuple):
    """A schedule as the kernel executes it. Each agent is one channel of a rank, and each route is a pair of ranks."""

    plan: Plan
    pairs: Pairs
    channels: int  # agents of a rank: agent a is channel a % channels of rank a // channels
    sends: LongInts | None  # [messages]: row of the send in the schedule's table; None without a table


def plan_table(table: StepTable, sizes: ChunkSizes) -> SchedulePlan:
    """Return the plan of a schedule that lists the operations of every rank. Empty messages are omitted."""
    columns, channels = table.columns, table.channels
    stage, starts = stages_of(columns)
    nbytes = sizes.nbytes(columns.chunk, columns.count)
    is_sent = (nbytes > 0) & (columns.kind < Kind.COPY)
    is_send = is_sent & (columns.kind == Kind.SEND)
    sends = np.flatnonzero(is_send)
    number = np.full(len(stage), -1, np.int32)
    number[sends] = np.arange(len(sends), dtype=np.int32)
    received = np.flatnonzero(is_sent & ~is_send)
    number[received] = number[columns.match[received]]
    keys = columns.rank[sends].astype(np.int64) * table.world_size + columns.peer[sends]
    distinct, route = number_distinct(keys, table.world_size**2)
    pairs = Pairs(*(ends.astype(np.int32) for ends in np.divmod(distinct, table.world_size)))
    agent = columns.rank[starts] * channels + columns.channel[starts]
    first_stage, stages = make_stages(agent, table.world_size * channels)
    stages["first_op"][1:] = np.cumsum(np.bincount(stage[is_sent], minlength=len(starts)))
    messages = make_messages(stage[sends], stage[columns.match[sends]], route, nbytes[sends])
    cost = NO_FLOATS
    if sizes.gamma > 0:
        reduced = np.where(columns.kind <= Kind.RECV, 0.0, nbytes)
        cost = np.bincount(stage, sizes.gamma * reduced, len(starts)).astype(np.float64)  # integers if empty
    return SchedulePlan(Plan(stages, messages, number[is_sent], cost, first_stage), pairs, channels, sends)


def stages_of(columns: OperationColumns) -> tuple[Ints, LongInts]:
    """Return the stage of each operation, and the first operation of each stage."""
    if len(columns.rank) == 0:
        return np.zeros(0, np.int32), np.zeros(0, np.int64)
    changes = np.logical_or.reduce([np.diff(column) != 0 for column in (columns.rank, columns.channel, columns.step)])
    begins = np.append(True, changes)
    return np.cumsum(begins, dtype=np.int32) - np.int32(1), np.flatnonzero(begins)


def make_stages(agent: Ints, agents: int) -> tuple[Ints, Records]:
    """Return the first stage of each agent, and a record per stage, given the ``agent`` of each stage.

    Each agent executes its stages in the order of their numbers. The caller sets the operations of the stages.
    """
    by_agent = np.argsort(agent.astype(np.uint16) if agents <= 1 << 16 else agent, kind="stable").astype(np.int32)
    owner = agent[by_agent]
    same = owner[1:] == owner[:-1]
    stages = np.zeros(len(agent) + 1, STAGE)
    stages["agent"][:-1], stages["following"] = agent, -1
    stages["following"][by_agent[:-1][same]] = by_agent[1:][same]
    first, begins = np.full(agents, -1, np.int32), np.append(True, ~same)[: len(owner)]
    first[owner[begins]] = by_agent[begins]
    return first, stages


def make_messages(source: Ints, sink: Ints, route: Ints, nbytes: Floats) -> Records:
    """Return a record per message. ``source`` and ``sink`` are stages."""
    messages = np.zeros(len(source), MESSAGE)
    for name, column in (("source", source), ("sink", sink), ("route", route), ("nbytes", nbytes)):
        messages[name] = column
    return messages


def distances(cyclic: SymmetricSchedule) -> Ints:
    """Return the distinct distances of messages around the ring of ranks, in ascending order."""
    return np.unique(cyclic.peer[cyclic.kind == Kind.SEND])


def cyclic_pairs(cyclic: SymmetricSchedule) -> Pairs:
    """Return all pairs of sender and receiver of a symmetric schedule, ordered by sender and then distance.

    Pair ``len(distances) * r + k`` is rank r and rank r + ``distances[k]``.
    """
    away, ranks = distances(cyclic), np.arange(cyclic.world_size, dtype=np.int32)
    return Pairs(np.repeat(ranks, len(away)), cyclic.ranks_at(away, ranks).T.reshape(-1))


class ActiveSteps(NamedTuple):
    """The pairs (step, channel) in which a symmetric schedule has operations, in ascending order.

    Stage ``world_size * s + r`` is the stage of rank r in active step s.
    """

    of_row: Ints  # [rows of the schedule]
    channel: Ints  # [active steps]


def find_active_steps(cyclic: SymmetricSchedule) -> ActiveSteps:
    keys = cyclic.step.astype(np.int64) * cyclic.channels + cyclic.channel
    distinct, of_row = np.unique(keys, return_inverse=True)
    return ActiveSteps(of_row.astype(np.int32), (distinct % cyclic.channels).astype(np.int32))


def plan_cyclic(cyclic: SymmetricSchedule, sizes: ChunkSizes) -> SchedulePlan:
    """Return the plan of a symmetric schedule. Raise RuntimeError if it has empty messages.

    Messages of the same stage have consecutive numbers, because they begin together and this suits CPU caches.
    """
    p, sends, active = cyclic.world_size, np.flatnonzero(cyclic.kind == Kind.SEND), find_active_steps(cyclic)
    nbytes = _bytes_by_rank(cyclic, sends, sizes)
    if not (nbytes > 0).all():
        raise RuntimeError("a symmetric schedule with empty messages cannot be planned; use with_table")
    ranks, away, runs = np.arange(p, dtype=np.int32), distances(cyclic), runs_of_steps(active.of_row[sends])
    messages = make_messages(
        order_by_step(active.of_row[sends, None] * p + ranks, runs),
        order_by_step(cyclic.ranks_at(cyclic.peer[sends], ranks) + active.of_row[cyclic.match[sends], None] * p, runs),
        order_by_step(np.searchsorted(away, cyclic.peer[sends]).astype(np.int32)[:, None] + len(away) * ranks, runs),
        order_by_step(nbytes, runs),
    )
    ops, per_stage = _ops(cyclic, sends, active)
    first_stage, stages = _stages(cyclic, active, per_stage)
    plan = Plan(stages, messages, ops, _cyclic_cost(cyclic, active, sizes), first_stage)
    return SchedulePlan(plan, cyclic_pairs(cyclic), cyclic.channels, None)


def _bytes_by_rank(cyclic: SymmetricSchedule, rows: Ints, sizes: ChunkSizes) -> Floats:
    """Return the bytes of the operations in ``rows`` of the schedule on each rank; shape [rows, ranks]."""
    first = cyclic.read.select(rows).on(np.arange(cyclic.world_size, dtype=np.int32), cyclic.world_size)
    return sizes.nbytes(first, np.broadcast_to(cyclic.count[rows, None], first.shape))


def _ops(cyclic: SymmetricSchedule, sends: Ints, active: ActiveSteps) -> tuple[Ints, Ints]:
    """Return the messages of each stage in turn, and the number of messages per stage in each active step."""
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


def _cyclic_cost(cyclic: SymmetricSchedule, active: ActiveSteps, sizes: ChunkSizes) -> Floats:
    if sizes.gamma == 0:
        return NO_FLOATS
    rows = np.flatnonzero(cyclic.kind > Kind.RECV)
    seconds, step = sizes.gamma * _bytes_by_rank(cyclic, rows, sizes), active.of_row[rows]
    cost = np.zeros((len(active.channel), cyclic.world_size))
    nth = np.arange(len(rows)) - np.searchsorted(step, step)  # position in its active step
    for k in range(int(nth.max(initial=-1)) + 1):
        cost[step[nth == k]] += seconds[nth == k]
    return cost.reshape(-1)


def sent_messages(cyclic: SymmetricSchedule, sizes: ChunkSizes) -> int:
    """Return the number of non-empty messages of a symmetric schedule."""
    sends, p = np.flatnonzero(cyclic.kind == Kind.SEND), cyclic.world_size
    table = sizes.offsets(cyclic.chunks + cyclic.scratch)
    base, shifted = cyclic.read.base[sends], cyclic.read.is_shifted[sends]
    number = np.where(table[base + cyclic.count[sends]] > table[base], p, 0)
    if shifted.any():
        filled = cyclic.by_cycle(np.diff(table) > 0).sum(axis=1)
        number[shifted] = filled[cyclic.cycle()[sends][shifted]]
    return int(number.sum())
