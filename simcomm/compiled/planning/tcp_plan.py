"""The plan of a request over TCP: what each rank does in order, and its messages with the streams that they take."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import numpy as np

from collectives.errors import InputError
from collectives.pipeline.bound_steps import Extent, Transfer, Write
from collectives.pipeline.extents import plan_pipeline
from collectives.pipeline.pipeline import Pipeline, SliceStep
from collectives.step import SEND
from collectives.transport import Transport
from simcomm.compiled.kernel.arrays import Ints, LongInts, Records
from simcomm.compiled.kernel.tcp_world import (
    AWAIT_RECEIVE,
    AWAIT_SEND,
    ITEM,
    OCCUPY,
    POST_RECEIVE,
    POST_SEND,
    SPEND,
    STREAM,
    TCP_MESSAGE,
    TcpPlan,
)
from simcomm.compiled.planning.engine_input import EngineInput
from simcomm.compiled.planning.routes import Pairs
from simcomm.model.tcp_order import MESSAGE_HEADER

MOST_PLANNED = 1_000_000  # messages; each takes Python some tens of microseconds


@dataclass(frozen=True)
class Deed:
    """Something that a rank does: about a transfer, or for some seconds of a step."""

    kind: int
    step: SliceStep[Extent]
    transfer: Transfer[Extent] | None = None
    seconds: float = 0.0
    held: float = 0.0  # seconds for which the rank keeps a core
    is_reduction: bool = False


class Reductions(NamedTuple):
    """The deeds that reduce or copy: which they are, and in which rank, channel and step."""

    deed: LongInts
    rank: Ints
    channel: Ints
    step: Ints


class TcpInput(NamedTuple):
    """A plan, and what its numbers stand for."""

    plan: TcpPlan
    pairs: Pairs  # of each stream
    sends: LongInts  # [messages]: each one's send in the schedule's table
    reductions: Reductions


def deeds_of(pipeline: Pipeline[Extent], transport: Transport) -> Iterator[Deed]:
    """Yield what a rank does, in order, as ``TcpSimulation.collective`` does it."""
    for place, step in enumerate(pipeline.first):
        yield from _post(step, transport, 0.0 if place or transport.tcp is None else transport.tcp.start)
    wake = 0.0 if transport.tcp is None else transport.tcp.wake_cpu
    for step in pipeline.steps:
        for transfer in step.step.receives:
            yield Deed(AWAIT_RECEIVE, step, transfer, wake, wake)
            if transfer.write is not None:
                yield from _reduce(step, transfer.write, transport)
        for transfer in step.due_sends:
            yield Deed(AWAIT_SEND, step, transfer, wake, wake)
        for write in step.step.late_writes:
            yield from _reduce(step, write, transport)
        if step.next is not None:
            yield from _post(step.next, transport)


def _post(step: SliceStep[Extent], transport: Transport, start: float = 0.0) -> Iterator[Deed]:
    terms = transport.tcp
    assert terms is not None
    if terms.exchange_overhead > 0 and step.step.sends and step.step.receives:
        yield Deed(SPEND, step, None, terms.exchange_overhead)
    transfers = (*step.receives, *step.step.sends, *step.early_receives)
    if (held := start + len(transfers) * terms.post_cpu) > 0:
        yield Deed(OCCUPY, step, None, start + terms.post_cpu, held)
    for place, transfer in enumerate(transfers):
        if place and terms.post_cpu > 0:
            yield Deed(SPEND, step, None, terms.post_cpu)
        yield Deed(POST_SEND if transfer.operation.kind is SEND else POST_RECEIVE, step, transfer)
    for write in step.step.writes:
        yield from _reduce(step, write, transport)


def _reduce(step: SliceStep[Extent], write: Write[Extent], transport: Transport) -> Iterator[Deed]:
    seconds = transport.gamma * write.target.nbytes
    if seconds > 0:
        assert transport.tcp is not None
        kind = OCCUPY if transport.tcp.cores < inf else SPEND
        yield Deed(kind, step, None, seconds, seconds, is_reduction=True)


class _Numbering:
    """Numbers of messages and streams, while ranks are asked one after the other what they do."""

    def __init__(self, world_size: int) -> None:
        self.world_size = world_size
        self._numbers: dict[Transfer[Extent], int] = {}
        self._lanes: dict[tuple[int, int, int], list[int]] = defaultdict(list)
        self._seen: dict[tuple[int, int, int, bool], int] = defaultdict(int)
        self.streams: dict[tuple[int, int], int] = {}
        self.messages: list[tuple[int, int, int, int, float]] = []  # src, dst, data, notice, nbytes
        self.names: list[tuple[int, int, int, int]] = []  # of the send: rank, channel, step, position

    def number(self, rank: int, step: SliceStep[Extent], transfer: Transfer[Extent]) -> int:
        """Return the number of a message that a rank posts or awaits: a lane's k-th send meets its k-th receive."""
        if transfer not in self._numbers:
            self._numbers[transfer] = self._post(rank, step, transfer)
        return self._numbers[transfer]

    def _post(self, rank: int, step: SliceStep[Extent], transfer: Transfer[Extent]) -> int:
        sends = transfer.operation.kind is SEND
        src, dst = (rank, transfer.peer) if sends else (transfer.peer, rank)
        side, lane = (src, dst, step.chain, sends), self._lanes[src, dst, step.chain]
        at = self._seen[side]
        self._seen[side] += 1
        if at == len(lane):
            lane.append(len(self.messages))
            self.messages.append((src, dst, self._stream(src, dst), self._stream(dst, src), float(transfer.nbytes)))
            self.names.append((0, 0, 0, 0))
        if sends:
            self.names[lane[at]] = rank, step.channel, transfer.step, transfer.position
        return lane[at]

    def _stream(self, src: int, dst: int) -> int:
        return self.streams.setdefault((src, dst), len(self.streams))


def plan_tcp(inputs: EngineInput) -> TcpInput:
    """Return the plan of a request. Raise InputError where there are too many messages to plan one by one."""
    terms, world_size = inputs.transport.tcp, inputs.schedule.world_size
    assert terms is not None
    if inputs.posted > MOST_PLANNED:
        raise InputError(
            f"{inputs.schedule.describe()}: its {inputs.posted} messages would have to be planned one by one with the "
            f"terms of TCP; up to {MOST_PLANNED:,} will do"
        )
    numbering, rows, first = _Numbering(world_size), list[tuple[int, int, float, float]](), [0]
    reductions: list[tuple[int, int, int, int]] = []
    for rank in range(world_size):
        if inputs.starts is not None:
            rows.append((SPEND, -1, float(inputs.starts[rank]), 0.0))
        pipeline = plan_pipeline(inputs.request, rank, world_size, step_by_step=not terms.pipeline)
        for deed in deeds_of(pipeline, inputs.transport):
            if deed.is_reduction:
                reductions.append((len(rows), rank, deed.step.channel, deed.step.step.number))
            message = -1 if deed.transfer is None else numbering.number(rank, deed.step, deed.transfer)
            rows.append((deed.kind, message, deed.seconds, deed.held))
        first.append(len(rows))
    columns = np.array(rows, np.float64).reshape(-1, 4)
    deeds, about, seconds, held = columns[:, 0], columns[:, 1], columns[:, 2].copy(), columns[:, 3].copy()
    found = Reductions(*np.array(reductions, np.int64).reshape(-1, 4).T.copy())
    slower = inputs.trouble.slowdown(inputs.index, found.rank, found.channel, found.step)
    seconds[found.deed] *= slower
    held[found.deed] *= slower
    plan = TcpPlan(
        deeds.astype(np.int32), about.astype(np.int32), seconds, held, np.array(first, np.int32), *_records(numbering)
    )
    plan = plan._replace(messages=_with_jitter(inputs, plan, numbering))
    pairs = np.array(list(numbering.streams), np.int32).reshape(-1, 2)
    return TcpInput(plan, Pairs(pairs[:, 0].copy(), pairs[:, 1].copy()), _sends(inputs, numbering), found)


def _records(numbering: _Numbering) -> tuple[Records, Records, Records]:
    """Return the messages, items and streams as they are before a run."""
    count, streams = len(numbering.messages), np.zeros(len(numbering.streams), STREAM)
    messages, items = np.zeros(count, TCP_MESSAGE), np.zeros(2 * count, ITEM)
    columns = np.array(numbering.messages, np.float64).reshape(-1, 5).T
    for name, column in zip(("src", "dst", "data", "notice"), columns, strict=False):
        messages[name] = column
    messages["send_posted"] = messages["receive_posted"] = messages["end"] = np.nan
    items["nbytes"] = np.append(columns[4] + MESSAGE_HEADER, np.full(count, MESSAGE_HEADER))
    items["stream"] = np.append(messages["data"], messages["notice"])
    streams["to_send"] = streams["to_write"] = streams["last"] = -1
    for (src, dst), number in numbering.streams.items():
        streams["number"][number] = src * numbering.world_size + dst
        streams["route"][number], streams["back"][number] = number, numbering.streams[dst, src]
    return messages, items, streams


def _sends(inputs: EngineInput, numbering: _Numbering) -> LongInts:
    """Return the row of each message's send in the schedule's table."""
    columns = inputs.schedule.table().columns
    rows: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    sites = zip(*(column.tolist() for column in (columns.rank, columns.channel, columns.step)), strict=True)
    for row, site in enumerate(sites):
        rows[site].append(row)
    return np.array([rows[rank, channel, step][at] for rank, channel, step, at in numbering.names], np.int64)


def _with_jitter(inputs: EngineInput, plan: TcpPlan, numbering: _Numbering) -> Records:
    """Return the messages with the seconds that each is late by chance."""
    messages = plan.messages
    if inputs.trouble.messages is not None:
        columns, sends = inputs.schedule.table().columns, _sends(inputs, numbering)
        names = (columns.rank, columns.peer, columns.channel, columns.step, columns.chunk)
        messages["late"] = inputs.trouble.delay(inputs.index, *(column[sends] for column in names))
    return messages
