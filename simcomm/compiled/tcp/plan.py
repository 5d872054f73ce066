"""Plan a simulation over TCP: the actions of each rank in order, and the messages with their streams."""

from collections import defaultdict
from collections.abc import Sequence
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
from simcomm.compiled.planning.schedule_plan import Pairs
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
    """The compute phases of a training step. All ranks share ``cores`` cores; None means that each has its own."""

    compute: ComputePhases
    cores: int | None


@dataclass(frozen=True)
class LocalWork:
    """A local computation of a rank, shown as a span. ``channel`` is a channel, or a constant such as ``FORWARD``."""

    name: str
    channel: int
    step: int
    collective: int


@dataclass
class TcpPlan:
    """The actions of all ranks, rank by rank, and all messages. The lists grow during planning."""

    world_size: int
    kinds: list[int] = field(default_factory=list)  # kind of each action
    message_of: list[int] = field(default_factory=list)  # [actions]: the message; -1 for local work
    seconds: list[float] = field(default_factory=list)  # [actions]
    occupied: list[float] = field(default_factory=list)  # [actions]
    first_action: list[int] = field(default_factory=lambda: [0])  # [ranks + 1]
    begins: list[list[int]] = field(default_factory=list)  # [ranks, collectives]: first action of each ...
    ends: list[list[int]] = field(default_factory=list)  # ... and the one after its last action
    local_work: list[tuple[int, int, LocalWork]] = field(default_factory=list)  # action, rank, and span
    messages: list[tuple[int, int, int, int, float]] = field(default_factory=list)  # src, dst, two streams, nbytes
    sends: list[tuple[int, int, int, int, int]] = field(default_factory=list)  # collective and location of each message
    streams: dict[tuple[int, int], int] = field(default_factory=dict)  # number of each pair of ranks
    _numbers: dict[Transfer[Extent], int] = field(default_factory=dict)
    _lanes: defaultdict[tuple[int, int, int], list[int]] = field(default_factory=lambda: defaultdict(list))
    _seen: defaultdict[tuple[int, int, int, bool], int] = field(default_factory=lambda: defaultdict(int))

    def spend(self, rank: int, kind: int, seconds: float, occupied: float = 0.0, work: LocalWork | None = None) -> None:
        """Add an action that takes a rank ``seconds`` and occupies a core for ``occupied`` seconds."""
        if work is not None:
            self.local_work.append((len(self.kinds), rank, work))
        self._add(kind, -1, seconds, occupied)

    def handle(
        self, place: tuple[int, int], kind: int, step: SliceStep[Extent], transfer: Transfer[Extent], wake: float = 0.0
    ) -> None:
        """Add an action that posts a transfer or waits for it. ``place`` is (rank, number of the collective)."""
        self._add(kind, self._message(*place, transfer, step), wake, wake)

    def _add(self, kind: int, message: int, seconds: float, occupied: float) -> None:
        self.kinds.append(kind)
        self.message_of.append(message)
        self.seconds.append(seconds)
        self.occupied.append(occupied)

    def _message(self, rank: int, index: int, transfer: Transfer[Extent], step: SliceStep[Extent]) -> int:
        """Return the number of the message that a transfer belongs to. A chain's k-th send matches its k-th receive."""
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
        """The pair of ranks that each stream connects."""
        return Pairs(*np.array(list(self.streams), np.int32).reshape(-1, 2).T.copy())

    def moments(self, actions: list[list[int]], done: Floats) -> Floats:
        """Return the times in seconds at which ranks reached the given actions; shape [collectives, ranks].

        ``actions`` lists, for each rank, one action per collective.
        """
        at, first = np.array(actions).T, np.array(self.first_action[:-1])
        return np.where(at > first, np.append(done, 0.0)[at - 1], 0.0)

    def spans(self, done: Floats) -> Spans:
        """Return the spans of all local computations."""
        if not self.local_work:
            return Spans.of(())
        action, rank = (np.array([work[column] for work in self.local_work]) for column in (0, 1))
        names = tuple(dict.fromkeys(work.name for *_, work in self.local_work))
        name, channel, step, collective = np.array(
            [(names.index(work.name), max(0, work.channel), work.step, work.collective) for *_, work in self.local_work]
        ).T
        is_first = np.isin(action, self.first_action)
        columns = {"begin": np.where(is_first, 0.0, done[action - 1]), "end": done[action], "channel": channel}
        return Spans(names, name=name, rank=rank, step=step, collective=collective, **columns)


def plan_tcp(collectives: Sequence[EngineInput], phases: Phases | None = None) -> TcpPlan:
    """Return the plan of consecutive collectives or, with ``phases``, of a training run with these gradient syncs.

    Raise TooLarge if there are too many messages to plan.
    """
    first = collectives[0]
    messages = first.posted * len(collectives)
    text = f"{first.schedule.describe()}: its {messages:,} messages would have to be planned one by one over TCP"
    check_fits(messages, Gigabyte.PLANNED, text)
    plan = TcpPlan(first.schedule.world_size)
    for rank in range(plan.world_size):
        begins, ends = list[int](), list[int]()
        for inputs in collectives:
            _compute(plan, rank, inputs, phases, FORWARD, BACKWARD)
            begins.append(len(plan.kinds))
            _communicate(plan, rank, inputs, SHARE if phases is not None and phases.cores is not None else SPEND)
            _compute(plan, rank, inputs, phases, DIVISION)
            ends.append(len(plan.kinds))
            _compute(plan, rank, inputs, phases, OPTIMIZER)
        plan.first_action.append(len(plan.kinds))
        plan.begins.append(begins)
        plan.ends.append(ends)
    _slow_down(plan, first)
    return plan


def _compute(plan: TcpPlan, rank: int, inputs: EngineInput, phases: Phases | None, *channels: int) -> None:
    """Add a rank's computations before or after a gradient sync, selected by ``channels`` such as ``FORWARD``."""
    if phases is None:
        return
    compute, kind = phases.compute, SPEND if phases.cores is None else SHARE
    known = {
        FORWARD: ("forward", compute.forward),
        BACKWARD: ("backward", compute.backward),
        DIVISION: ("reduce", inputs.transport.gamma * inputs.call.nbytes),
        OPTIMIZER: ("optimizer", compute.optimizer),
    }
    for channel in channels:
        name, seconds = known[channel]
        if seconds > 0:
            plan.spend(rank, kind, seconds, seconds, LocalWork(name, channel, inputs.index, inputs.index))


def _communicate(plan: TcpPlan, rank: int, inputs: EngineInput, computes: int) -> None:
    """Add the actions of a rank in a collective, in the order in which the executor performs them.

    ``computes`` is the kind of action for reductions; it is not used if the transport limits the number of cores.
    """
    terms, gamma, world_size = inputs.transport.tcp, inputs.transport.gamma, inputs.schedule.world_size
    assert terms is not None
    kind, place, wake = OCCUPY if terms.cores < inf else computes, (rank, inputs.index), terms.wake_cpu

    def reduce(step: SliceStep[Extent], write: Write[Extent]) -> None:
        if (seconds := gamma * write.target.nbytes) > 0:
            work = LocalWork("reduce", step.channel, step.step.number, inputs.index)
            plan.spend(rank, kind, seconds, seconds, work)

    def post(step: SliceStep[Extent], start: float = 0.0) -> None:
        _post(plan, place, step, terms, start)
        for write in step.step.writes:
            reduce(step, write)

    pipeline = plan_pipeline(inputs.call, rank, world_size, step_by_step=not terms.pipeline)
    for number, step in enumerate(pipeline.first):
        post(step, 0.0 if number else terms.start)
    for step in pipeline.steps:
        for transfer in step.step.receives:
            plan.handle(place, AWAIT_RECEIVE, step, transfer, wake)
            if transfer.write is not None:
                reduce(step, transfer.write)
        for transfer in step.due_sends:
            plan.handle(place, AWAIT_SEND, step, transfer, wake)
        for write in step.step.late_writes:
            reduce(step, write)
        if step.next is not None:
            post(step.next)


def _post(plan: TcpPlan, place: tuple[int, int], step: SliceStep[Extent], terms: TcpTerms, start: float) -> None:
    """Add the actions that post a step's messages, preceded by ``start`` seconds on a core."""
    rank, _ = place
    if terms.exchange_overhead > 0 and step.step.sends and step.step.receives:
        plan.spend(rank, SPEND, terms.exchange_overhead)
    transfers = (*step.receives, *step.step.sends, *step.early_receives)
    if (occupied := start + len(transfers) * terms.post_cpu) > 0:
        plan.spend(rank, OCCUPY, start + terms.post_cpu, occupied)
    for number, transfer in enumerate(transfers):
        if number and terms.post_cpu > 0:
            plan.spend(rank, SPEND, terms.post_cpu)
        plan.handle(place, POST_SEND if transfer.operation.kind is SEND else POST_RECEIVE, step, transfer)


def _slow_down(plan: TcpPlan, inputs: EngineInput) -> None:
    if not plan.local_work or not (inputs.faults.ranks or inputs.faults.compute):
        return
    locations = [(work.collective, rank, work.channel, work.step) for _, rank, work in plan.local_work]
    slower = inputs.faults.slowdown(*np.array(locations).T)
    for (action, _, _), factor in zip(plan.local_work, slower.tolist(), strict=True):
        plan.seconds[action] *= factor
        plan.occupied[action] *= factor


def records_of(plan: TcpPlan) -> tuple[Records, Records, Records]:
    """Return the initial records of messages, items and streams."""
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
