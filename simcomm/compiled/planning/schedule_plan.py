"""The plan of a schedule on a buffer: stages, messages with their sizes, and which ranks they join."""

from typing import NamedTuple

import numpy as np

from collectives.schedule.table import OperationColumns, StepTable
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
from simcomm.compiled.planning.routes import Pairs


class ChunkSizes(NamedTuple):
    """How many bytes chunks have, and what each byte costs to reduce."""

    chunks: int
    elements: int  # of the buffer
    itemsize: int
    gamma: float  # seconds a byte

    def nbytes(self, chunk: Ints, count: Ints) -> Floats:
        """Return the bytes of ``count`` chunks from ``chunk`` on, for each entry."""
        behind = chunk + count
        table = self.offsets(int(behind.max(initial=0))) * float(self.itemsize)  # whole numbers below 2^53, so exact
        found: Floats = table[behind]
        found -= table[chunk]
        return found

    def offsets(self, last: int) -> LongInts:
        """Return the first element of each chunk up to the last."""
        return offset(np.arange(last + 1, dtype=np.int64), self.elements, self.chunks)


class SchedulePlan(NamedTuple):
    """A plan whose agents are the channels of ranks and whose routes are the pairs of ranks that send."""

    plan: Plan
    pairs: Pairs
    channels: int  # agents of a rank: agent a is channel a % channels of rank a // channels
    sends: LongInts | None  # [messages]: each one's send in the schedule's table; None where there is no table


def plan_table(table: StepTable, sizes: ChunkSizes) -> SchedulePlan:
    """Return the plan of a schedule written out, without its empty messages."""
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
    pairs, route = _number_pairs(columns.rank[sends], columns.peer[sends], table.world_size)
    agent = columns.rank[starts] * channels + columns.channel[starts]
    first_stage, stages = make_stages(agent, table.world_size * channels)
    stages["first_op"][1:] = np.cumsum(np.bincount(stage[is_sent], minlength=len(starts)))
    messages = make_messages(stage[sends], stage[columns.match[sends]], route, nbytes[sends])
    cost = _cost(columns, stage, len(starts), nbytes, sizes)
    return SchedulePlan(Plan(stages, messages, number[is_sent], cost, NO_FLOATS, first_stage), pairs, channels, sends)


def stages_of(columns: OperationColumns) -> tuple[Ints, LongInts]:
    """Return the stage of each operation, and the first operation of each stage."""
    if len(columns.rank) == 0:
        return np.zeros(0, np.int32), np.zeros(0, np.int64)
    changes = np.logical_or.reduce([np.diff(column) != 0 for column in (columns.rank, columns.channel, columns.step)])
    begins = np.append(True, changes)
    return np.cumsum(begins, dtype=np.int32) - np.int32(1), np.flatnonzero(begins)


def _cost(columns: OperationColumns, stage: Ints, stages: int, nbytes: Floats, sizes: ChunkSizes) -> Floats:
    """Return the seconds that each stage computes after its messages; empty where reducing costs nothing."""
    if sizes.gamma == 0:
        return NO_FLOATS
    reduced = np.where(columns.kind <= Kind.RECV, 0.0, nbytes)
    return np.bincount(stage, weights=sizes.gamma * reduced, minlength=stages).astype(np.float64)  # or int, if empty


def make_stages(agent: Ints, agents: int) -> tuple[Ints, Records]:
    """Return the first stage of each agent, and a record for each stage; ``agent`` [stages] says whose each is.

    Stages of one agent follow each other in the order of their numbers. Their ops are left to the caller.
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
    """Return a record for each message; ``source`` and ``sink`` are stages."""
    messages = np.zeros(len(source), MESSAGE)
    for name, column in (("source", source), ("sink", sink), ("route", route), ("nbytes", nbytes)):
        messages[name] = column
    return messages


def _number_pairs(src: Ints, dst: Ints, world_size: int) -> tuple[Pairs, Ints]:
    """Return the distinct pairs, and for each message the number of its own."""
    distinct, pair = number_distinct(src.astype(np.int64) * world_size + dst, world_size**2)
    ends = np.divmod(distinct, world_size)
    return Pairs(ends[0].astype(np.int32), ends[1].astype(np.int32)), pair


def most_at_once(plan: Plan, end: str) -> LongInts:
    """Return of each agent the most messages that one of its stages sends (``end`` "source") or receives ("sink")."""
    agent = plan.stages["agent"][:-1]
    number = np.bincount(plan.messages[end], minlength=len(agent))
    most = np.zeros(len(plan.first_stage), np.int64)
    np.maximum.at(most, agent, number)
    return most


def most_in_flight(plan: Plan) -> int:
    """Return how many messages can be under way at once: those that agents send at once."""
    return max(1, int(most_at_once(plan, "source").sum()))
