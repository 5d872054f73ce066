"""From what ranks say to what the engine sends: stages, messages with their sizes, and which ranks they join."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from collectives.schedule.table import Columns, StepTable
from collectives.step import Kind
from simcomm.compiled.pairs import Pairs
from simcomm.compiled.plan import MESSAGE, NONE, STAGE, Plan
from simcomm.compiled.routes import Floats, Ints

DENSE = 1 << 24  # entries of a table over all pairs of ranks, beyond which pairs are sorted instead


class Sizes(NamedTuple):
    """How many bytes a chunk has, and what each of them costs to reduce."""

    chunks: int
    n: int  # elements of the buffer
    itemsize: int
    gamma: float  # seconds a byte

    def nbytes(self, chunk: Ints, count: Ints) -> Floats:
        """Bytes of ``count`` chunks from ``chunk`` on, for each entry."""
        table = self.offsets(int((chunk + count).max(initial=0)))
        return (table[chunk + count] - table[chunk]) * float(self.itemsize)

    def offsets(self, last: int) -> npt.NDArray[np.int64]:
        """First element of each chunk up to the last; as ``collectives.step.offset``."""
        k = np.arange(last + 1, dtype=np.int64)
        return k // self.chunks * self.n + k % self.chunks * self.n // self.chunks


class Demand(NamedTuple):
    """A plan, the pairs of ranks that are its routes, and what it says of messages beyond what the engine reads."""

    plan: Plan
    pairs: Pairs
    channels: int  # agents of a rank
    sends: npt.NDArray[np.int64] | None  # [messages]: index of each one's send in the table, where there is one


def demand(table: StepTable, sizes: Sizes) -> Demand:
    """Stages and messages of a program on a buffer, without empty messages. An agent is a channel of a rank."""
    columns, channels = table.columns, table.channels
    stage, starts = stages_of(columns)
    nbytes = sizes.nbytes(columns.chunk, columns.count)
    travels = (nbytes > 0) & (columns.kind < Kind.COPY)
    is_send = travels & (columns.kind == Kind.SEND)
    sends = np.flatnonzero(is_send)
    number = np.full(len(stage), -1, np.int32)
    number[sends] = np.arange(len(sends), dtype=np.int32)
    received = np.flatnonzero(travels & ~is_send)
    number[received] = number[columns.match[received]]
    pairs, route = _pairs(columns.rank[sends], columns.peer[sends], table.world_size)
    agent = columns.rank[starts] * channels + columns.channel[starts]
    first_stage, stages = stage_records(agent, table.world_size * channels)
    stages["first_op"][1:] = np.cumsum(np.bincount(stage[travels], minlength=len(starts)))
    messages = message_records(stage[sends], stage[columns.match[sends]], route, nbytes[sends])
    cost = _cost(columns, stage, len(starts), nbytes, sizes)
    return Demand(Plan(stages, messages, number[travels], cost, NONE, first_stage), pairs, channels, sends)


def stages_of(columns: Columns) -> tuple[Ints, npt.NDArray[np.int64]]:
    """The stage of each operation, and the first operation of each stage."""
    if len(columns.rank) == 0:
        return np.zeros(0, np.int32), np.zeros(0, np.int64)
    changes = np.logical_or.reduce([np.diff(column) != 0 for column in (columns.rank, columns.channel, columns.step)])
    begins = np.append(True, changes)
    return np.cumsum(begins, dtype=np.int32) - np.int32(1), np.flatnonzero(begins)


def _cost(columns: Columns, stage: Ints, stages: int, nbytes: Floats, sizes: Sizes) -> Floats:
    """Seconds that each stage computes once its messages are through; empty where reducing costs nothing."""
    if sizes.gamma == 0:
        return NONE
    reduced = np.where(columns.kind <= Kind.RECV, 0.0, nbytes)
    return np.bincount(stage, weights=sizes.gamma * reduced, minlength=stages).astype(np.float64)  # or int, if empty


def stage_records(agent: Ints, agents: int) -> tuple[Ints, npt.NDArray[Any]]:
    """First stage of each agent, and all stages, which stand in the order in which each agent goes through its own."""
    by_agent = np.argsort(agent.astype(np.uint16) if agents <= 1 << 16 else agent, kind="stable").astype(np.int32)
    owner = agent[by_agent]
    same = owner[1:] == owner[:-1]
    stages = np.zeros(len(agent) + 1, STAGE)
    stages["agent"][:-1], stages["following"] = agent, -1
    stages["following"][by_agent[:-1][same]] = by_agent[1:][same]
    first, begins = np.full(agents, -1, np.int32), np.append(True, ~same)[: len(owner)]
    first[owner[begins]] = by_agent[begins]
    return first, stages


def message_records(source: Ints, sink: Ints, route: Ints, nbytes: Floats) -> npt.NDArray[Any]:
    """Messages as the engine reads them."""
    messages = np.zeros(len(source), MESSAGE)
    for name, column in (("source", source), ("sink", sink), ("route", route), ("nbytes", nbytes)):
        messages[name] = column
    return messages


def _pairs(src: Ints, dst: Ints, world_size: int) -> tuple[Pairs, Ints]:
    """The distinct pairs, and for each message the number of its own."""
    keys = src.astype(np.int64) * world_size + dst
    if world_size**2 > DENSE:
        distinct, pair = np.unique(keys, return_inverse=True)
    else:
        number = np.zeros(world_size**2, np.int32)
        number[keys] = 1
        distinct = np.flatnonzero(number)
        number[distinct] = np.arange(len(distinct), dtype=np.int32)
        pair = number[keys]
    ends = np.divmod(distinct, world_size)
    return Pairs(ends[0].astype(np.int32), ends[1].astype(np.int32)), pair.astype(np.int32)


def most_at_once(plan: Plan, end: str) -> npt.NDArray[np.int64]:
    """Of each agent the most messages that one of its stages sends (``end`` = "source") or receives ("sink")."""
    agent = plan.stages["agent"][:-1]
    number = np.bincount(plan.messages[end], minlength=len(agent))
    most = np.zeros(len(plan.first_stage), np.int64)
    np.maximum.at(most, agent, number)
    return most


def most_in_flight(plan: Plan) -> int:
    """How many messages can be under way at once: those that agents send at once."""
    return max(1, int(most_at_once(plan, "source").sum()))
