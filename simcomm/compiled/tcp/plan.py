"""The plan of a run over TCP: what each rank does in order, and its messages with the streams that they take."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

import numpy as np

from collectives.budget import Gigabyte, check_fits
from collectives.pipeline.bound_steps import Extent, Transfer, Write
from collectives.pipeline.pipeline import SliceStep, plan_pipeline
from collectives.records.spans import Spans
from collectives.step import SEND
from collectives.training.workload import ComputePhases
from collectives.transport import TcpTerms
from simcomm.compiled.kernel.arrays import Floats, LongInts, Records
from simcomm.compiled.planning.engine_input import EngineInput
from simcomm.compiled.planning.routes import Pairs
from simcomm.compiled.tcp.records import (
    AWAIT_RECEIVE,
    AWAIT_SEND,
    ITEM,
    MESSAGE_HEADER,
    OCCUPY,
    POST_RECEIVE,
    POST_SEND,
    SHARE,
    SPEND,
    STREAM,
    TCP_MESSAGE,
)
from simcomm.model.faults import BACKWARD, DIVISION, FORWARD, OPTIMIZER


class Phases(NamedTuple):
    """What the ranks of a training compute in each step, and on how many cores that they share, if they do."""

    compute: ComputePhases
    cores: int | None


@dataclass(frozen=True)
class LocalWork:
    """What takes a rank time by itself, as a span of a trace says it; ``channel`` may be one of the faults's."""

    name: str
    channel: int
    step: int
    collective: int


@dataclass(frozen=True)
class Deed:
    """Something that a rank does: about a transfer, or for some seconds."""

    kind: int
    step: SliceStep[Extent] | None = None
    transfer: Transfer[Extent] | None = None
    seconds: float = 0.0
    held: float = 0.0  # seconds for which the rank keeps a core
    work: LocalWork | None = None


@dataclass
class TcpPlan:
    """What all ranks do, rank by rank, and the messages of all; all lists grow while ranks are asked."""

    world_size: int
    kinds: list[int] = field(default_factory=list)  # of deeds
    about: list[int] = field(default_factory=list)  # [deeds]: the message; -1 of what takes time
    seconds: list[float] = field(default_factory=list)  # [deeds]
    held: list[float] = field(default_factory=list)  # [deeds]
    first_deed: list[int] = field(default_factory=lambda: [0])  # [ranks + 1]
    begins: list[list[int]] = field(default_factory=list)  # [ranks, collectives]: the first deed of each ...
    ends: list[list[int]] = field(default_factory=list)  # ... and the one after its last
    works: list[tuple[int, int, LocalWork]] = field(default_factory=list)  # by deed: its rank, and what it is
    messages: list[tuple[int, int, int, int, float]] = field(
        default_factory=list
    )  # src, dst, data, notification, nbytes
    sends: list[tuple[int, int, int, int, int]] = field(default_factory=list)  # collective and location of each message
    streams: dict[tuple[int, int], int] = field(default_factory=dict)  # numbers by ranks
    _numbers: dict[Transfer[Extent], int] = field(default_factory=dict)
    _lanes: defaultdict[tuple[int, int, int], list[int]] = field(default_factory=lambda: defaultdict(list))
    _seen: defaultdict[tuple[int, int, int, bool], int] = field(default_factory=lambda: defaultdict(int))

    def add(self, rank: int, index: int, deed: Deed) -> None:
        """Add what a rank does in the ``index``-th collective, or beside it."""
        if deed.work is not None:
            self.works.append((len(self.kinds), rank, deed.work))
        self.about.append(-1 if deed.transfer is None else self._message(rank, index, deed.transfer, deed.step))
        self.kinds.append(deed.kind)
        self.seconds.append(deed.seconds)
        self.held.append(deed.held)

    def _message(self, rank: int, index: int, transfer: Transfer[Extent], step: SliceStep[Extent] | None) -> int:
        """Return the message that a rank posts or awaits: a lane's k-th send meets its k-th receive."""
        assert step is not None
        if transfer in self._numbers:
            return self._numbers[transfer]
        sends = transfer.operation.kind is SEND
        src, dst = (rank, transfer.peer) if sends else (transfer.peer, rank)
        side, lane = (src, dst, step.chain, sends), self._lanes[src, dst, step.chain]
        at = self._seen[side]
        self._seen[side] += 1
        if at == len(lane):
            lane.append(len(self.messages))
            self.messages.append((src, dst, self._stream(src, dst), self._stream(dst, src), float(transfer.nbytes)))
            self.sends.append((0, 0, 0, 0, 0))
        if sends:
            self.sends[lane[at]] = index, rank, step.channel, transfer.step, transfer.position
        self._numbers[transfer] = lane[at]
        return lane[at]

    def _stream(self, src: int, dst: int) -> int:
        return self.streams.setdefault((src, dst), len(self.streams))

    @property
    def pairs(self) -> Pairs:
        """The ranks of each stream."""
        return Pairs(*np.array(list(self.streams), np.int32).reshape(-1, 2).T.copy())

    def moments(self, deeds: list[list[int]], done: Floats) -> Floats:
        """Return when ranks came to these deeds [ranks, collectives], each rank's first at 0; [collectives, ranks]."""
        at, first = np.array(deeds).T, np.array(self.first_deed[:-1])
        return np.where(at > first, np.append(done, 0.0)[at - 1], 0.0)

    def spans(self, done: Floats) -> Spans:
        """Return what took ranks time by themselves."""
        if not self.works:
            return Spans.of(())
        deed, rank = (np.array([work[column] for work in self.works]) for column in (0, 1))
        names = tuple(dict.fromkeys(work.name for *_, work in self.works))
        name, channel, step, collective = np.array(
            [(names.index(work.name), max(0, work.channel), work.step, work.collective) for *_, work in self.works]
        ).T
        is_first = np.isin(deed, self.first_deed)
        columns = {"begin": np.where(is_first, 0.0, done[deed - 1]), "end": done[deed], "channel": channel}
        return Spans(names, name=name, rank=rank, step=step, collective=collective, **columns)


def plan_tcp(collectives: Sequence[EngineInput], phases: Phases | None = None) -> TcpPlan:
    """Return the plan of collectives, one after the other; with ``phases`` they are the syncs of a training.

    Raises TooLarge where there are too many messages to plan one by one.
    """
    one = collectives[0]
    messages = one.posted * len(collectives)
    what = (
        f"{one.schedule.describe()}: its {messages:,} messages would have to be planned one by one, as TCP is simulated"
    )
    check_fits(messages, Gigabyte.PLANNED, what)
    plan = TcpPlan(one.schedule.world_size)
    for rank in range(plan.world_size):
        begins, ends = list[int](), list[int]()
        for inputs in collectives:
            for deed in _computing(inputs, phases, FORWARD, BACKWARD):
                plan.add(rank, inputs.index, deed)
            begins.append(len(plan.kinds))
            for deed in _deeds(inputs, rank, SHARE if phases is not None and phases.cores is not None else SPEND):
                plan.add(rank, inputs.index, deed)
            for deed in _computing(inputs, phases, DIVISION):
                plan.add(rank, inputs.index, deed)
            ends.append(len(plan.kinds))
            for deed in _computing(inputs, phases, OPTIMIZER):
                plan.add(rank, inputs.index, deed)
        plan.first_deed.append(len(plan.kinds))
        plan.begins.append(begins)
        plan.ends.append(ends)
    _slow_down(plan, one)
    return plan


def _computing(inputs: EngineInput, phases: Phases | None, *what: int) -> Iterator[Deed]:
    """Yield what a rank of a training computes beside the sync, if that takes time."""
    if phases is None:
        return
    division = inputs.transport.gamma * inputs.call.nbytes
    compute, kind = phases.compute, SPEND if phases.cores is None else SHARE
    known = {
        FORWARD: ("forward", compute.forward),
        BACKWARD: ("backward", compute.backward),
        DIVISION: ("reduce", division),
        OPTIMIZER: ("optimizer", compute.optimizer),
    }
    for channel in what:
        name, seconds = known[channel]
        if seconds > 0:
            yield Deed(kind, seconds=seconds, held=seconds, work=LocalWork(name, channel, inputs.index, inputs.index))


def _deeds(inputs: EngineInput, rank: int, computes: int) -> Iterator[Deed]:
    """Yield what a rank does in a collective, as the executor does it; on cores of its own it ``computes``."""
    terms, gamma, world_size = inputs.transport.tcp, inputs.transport.gamma, inputs.schedule.world_size
    assert terms is not None
    kind = OCCUPY if terms.cores < inf else computes

    def reduce(step: SliceStep[Extent], write: Write[Extent]) -> Iterator[Deed]:
        if (seconds := gamma * write.target.nbytes) > 0:
            work = LocalWork("reduce", step.channel, step.step.number, inputs.index)
            yield Deed(kind, step, None, seconds, seconds, work)

    def post(step: SliceStep[Extent], start: float = 0.0) -> Iterator[Deed]:
        yield from _post(step, terms, start)
        for write in step.step.writes:
            yield from reduce(step, write)

    pipeline = plan_pipeline(inputs.call, rank, world_size, step_by_step=not terms.pipeline)
    for place, step in enumerate(pipeline.first):
        yield from post(step, 0.0 if place else terms.start)
    for step in pipeline.steps:
        for transfer in step.step.receives:
            yield Deed(AWAIT_RECEIVE, step, transfer, terms.wake_cpu, terms.wake_cpu)
            if transfer.write is not None:
                yield from reduce(step, transfer.write)
        for transfer in step.due_sends:
            yield Deed(AWAIT_SEND, step, transfer, terms.wake_cpu, terms.wake_cpu)
        for write in step.step.late_writes:
            yield from reduce(step, write)
        if step.next is not None:
            yield from post(step.next)


def _post(step: SliceStep[Extent], terms: TcpTerms, start: float) -> Iterator[Deed]:
    """Yield how a rank posts the messages of a step; it has a core for as long, and ``start`` seconds before."""
    if terms.exchange_overhead > 0 and step.step.sends and step.step.receives:
        yield Deed(SPEND, step, None, terms.exchange_overhead)
    transfers = (*step.receives, *step.step.sends, *step.early_receives)
    if (held := start + len(transfers) * terms.post_cpu) > 0:
        yield Deed(OCCUPY, step, None, start + terms.post_cpu, held)
    for place, transfer in enumerate(transfers):
        if place and terms.post_cpu > 0:
            yield Deed(SPEND, step, None, terms.post_cpu)
        yield Deed(POST_SEND if transfer.operation.kind is SEND else POST_RECEIVE, step, transfer)


def _slow_down(plan: TcpPlan, inputs: EngineInput) -> None:
    """Let what ranks compute take as many times as long as the faults say."""
    if not plan.works or not (inputs.faults.ranks or inputs.faults.compute):
        return
    locations = [(work.collective, rank, work.channel, work.step) for _, rank, work in plan.works]
    slower = inputs.faults.slowdown(*np.array(locations).T)
    for (deed, _, _), factor in zip(plan.works, slower.tolist(), strict=True):
        plan.seconds[deed] *= factor
        plan.held[deed] *= factor


def records_of(plan: TcpPlan) -> tuple[Records, Records, Records]:
    """Return the messages, items and streams as they are before a run."""
    count, streams = len(plan.messages), np.zeros(len(plan.streams), STREAM)
    messages, items = np.zeros(count, TCP_MESSAGE), np.zeros(2 * count, ITEM)
    columns = np.array(plan.messages, np.float64).reshape(-1, 5).T
    for name, column in zip(("src", "dst", "data", "notification"), columns, strict=False):
        messages[name] = column
    messages["send_posted"] = messages["receive_posted"] = messages["end"] = np.nan
    items["nbytes"] = np.append(columns[4] + MESSAGE_HEADER, np.full(count, MESSAGE_HEADER))
    items["stream"] = np.append(messages["data"], messages["notification"])
    streams["to_send"] = streams["to_write"] = streams["last"] = -1
    for (src, dst), number in plan.streams.items():
        streams["number"][number] = src * plan.world_size + dst
        streams["route"][number], streams["back"][number] = number, plan.streams[dst, src]
    return messages, items, streams


def rows_of_sends(plan: TcpPlan, inputs: EngineInput) -> LongInts:
    """Return the row of each message's send in the schedule's table."""
    columns = inputs.schedule.table().columns
    rows: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    locations = zip(*(column.tolist() for column in (columns.rank, columns.channel, columns.step)), strict=True)
    for row, location in enumerate(locations):
        rows[location].append(row)
    return np.array([rows[rank, channel, step][at] for _, rank, channel, step, at in plan.sends], np.int64)
