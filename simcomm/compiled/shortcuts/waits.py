"""Find the waits, the critical path and the unfinished operations of a max-plus run without listing its messages.

Only the times at which ranks reach steps are stored. All other times are computed on demand.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from math import inf
from typing import NamedTuple

import numpy as np

from collectives.records.messages import Message
from collectives.records.spans import Span
from collectives.records.trace import Unfinished
from collectives.records.waits import ROUNDING, Leg
from collectives.step import Kind
from simcomm.compiled.kernel.arrays import Floats
from simcomm.compiled.planning.engine_input import EngineInput
from simcomm.compiled.planning.schedule_plan import distances
from simcomm.compiled.shortcuts.max_plus import ChannelRun, MaxPlusRun


class Standstill(NamedTuple):
    """The state of a run that hangs: the time at which it stops, and the unfinished operations."""

    last: float  # end of the last message or computation, in seconds
    unfinished: tuple[Unfinished, ...]


def standstill(inputs: EngineInput, run: MaxPlusRun) -> Standstill | None:
    """Return the standstill of a run that hangs, or None if all ranks finished."""
    if np.isfinite(run.finished).all():
        return None
    waiting = [operation for channel in run.channels for operation in _Waiting(channel, inputs).all()]
    return Standstill(run.last, tuple(sorted(waiting, key=lambda operation: (operation.since, operation))))


class _Waiting:
    def __init__(self, run: ChannelRun, inputs: EngineInput) -> None:
        self.run, self.cyclic, self.itemsize = run, run.schedule, inputs.sizes.itemsize
        self.offsets = inputs.sizes.offsets(self.cyclic.chunks + self.cyclic.scratch)
        self.away, self.step = distances(self.cyclic), np.unique(self.cyclic.step)
        self.first_row = np.searchsorted(self.cyclic.step, self.step)
        self.last_row = np.searchsorted(self.cyclic.step, self.step, side="right")

    def all(self) -> Iterator[Unfinished]:
        for rank in np.flatnonzero(np.isfinite(self.run.halted_since)).tolist():
            step = int(self.run.halted_step[rank])
            for row in range(self.first_row[step], self.last_row[step]):
                if self.cyclic.channel[row] == self.run.channel and self.cyclic.kind[row] < Kind.COPY:
                    yield from self._half(rank, step, row)

    def _half(self, rank: int, step: int, row: int) -> Iterator[Unfinished]:
        """Yield the send or receive that a rank posts in ``row``, unless the message is empty or has arrived."""
        cyclic, sends = self.cyclic, self.cyclic.kind[row] == Kind.SEND
        peer, chunk = (rank + int(cyclic.peer[row])) % cyclic.world_size, self._chunk(rank, row)
        count = int(cyclic.count[row])
        nbytes = float((self.offsets[chunk + count] - self.offsets[chunk]) * self.itemsize)
        if nbytes == 0:
            return
        posted = self._posted(peer, step)
        if posted:
            source = row if sends else int(cyclic.match[row])
            src, dst = (rank, peer) if sends else (peer, rank)
            if not self._is_stuck(src, dst, source, nbytes):
                return
        yield Unfinished(
            rank=rank,
            peer=peer,
            sends=bool(sends),
            step=int(self.step[step]),
            channel=self.run.channel,
            since=float(self.run.halted_since[rank]),
            is_under_way=posted,
            chunk=chunk,
            count=count,
            collective=self.run.index,
        )

    def _posted(self, rank: int, step: int) -> bool:
        last = self.run.halted_step[rank]
        return bool(last > step or (last == step and self.run.halted_since[rank] < inf))

    def _is_stuck(self, src: int, dst: int, row: int, nbytes: float) -> bool:
        """Return whether a message never arrives although both of its ranks have posted it."""
        run, distance = self.run, int(np.searchsorted(self.away, (dst - src) % self.cyclic.world_size))
        if run.halted_step[src] != run.halted_step[dst]:
            return False
        if run.rates is None or not run.rates.change(distance, src):
            return bool(run.rate[distance, src] == 0)
        named = run.index, src, dst, run.channel, int(self.cyclic.step[row]), self._chunk(src, row)
        late = float(run.faults.delay(*named)) if run.faults.messages else 0.0
        start = max(run.halted_since[src], run.halted_since[dst]) + run.delay[distance, src] + late
        return run.rates.arrival(distance, src, float(start), nbytes) == inf

    def _chunk(self, rank: int, row: int) -> int:
        """Return the first chunk that a rank sends or, if it receives, writes in ``row``."""
        cyclic = self.cyclic
        chunk = cyclic.read if cyclic.kind[row] == Kind.SEND else cyclic.written
        return int(chunk.select(np.array([row])).on(np.array([rank]), cyclic.world_size)[0, 0])


def waited_by_steps(runs: Iterable[MaxPlusRun]) -> dict[tuple[int, int], float]:
    """Return the total seconds that each rank waited for a peer's send or receive, by (rank, peer).

    The waits in all runs are added up. All runs must have the same ranks and keep their steps.
    """
    waited: dict[int, Floats] = {}  # by distance of the peer; [ranks]
    for channel in (channel for run in runs for channel in run.channels):
        rows, p = channel.rows, channel.ranks
        for step in range(len(rows.first) - 1):
            posted = channel.begun[step]
            for row in range(rows.first[step], rows.first[step + 1]):
                if rows.sends[row]:
                    away = int(rows.away[row])
                    later = (np.roll(posted, -away) - posted) * (channel.nbytes(row) > 0)
                    for_receiver, for_sender = (waited.setdefault(by, np.zeros(p)) for by in (away, p - away))
                    for_receiver += np.maximum(later, 0.0)
                    for_sender += np.roll(np.maximum(-later, 0.0), away)
    by_pair: dict[tuple[int, int], float] = {}
    for away, seconds in sorted(waited.items()):
        for rank in np.flatnonzero(seconds).tolist():
            by_pair[rank, (rank + away) % len(seconds)] = float(seconds[rank])
    return by_pair


def _legs(channel: ChannelRun, rank: int, step: int) -> Iterator[Message | Span]:
    """Yield a rank's messages in a step, without routes, and then its computations."""
    rows, now = channel.rows, channel.begun.item(step, rank)
    here = range(rows.first[step], rows.first[step + 1])
    for row in here:
        if rows.sends[row]:
            for src in (rank, (rank - int(rows.away[row])) % channel.ranks):
                end = channel.arrivals(row).item(src)
                if end > -inf:
                    yield _message(channel, row, step, src, end)
                    now = max(now, end)
    for row in here:
        if not rows.sends[row] and channel.gamma > 0:
            nbytes = channel.nbytes(row)
            seconds = channel.gamma * nbytes.item(rank % len(nbytes)) * channel.slower(step).item(rank)
            if seconds > 0:
                yield Span(rank, "reduce", int(rows.step[row]), now, now + seconds, channel.channel, channel.index)
            now += seconds


def _message(channel: ChannelRun, row: int, step: int, src: int, end: float) -> Message:
    dst, nbytes = (src + int(channel.rows.away[row])) % channel.ranks, channel.nbytes(row)
    posted = channel.begun.item(step, src), channel.begun.item(step, dst)
    return Message(
        src=src,
        dst=dst,
        step=int(channel.rows.step[row]),
        chunk=channel.chunk(row, src),
        nbytes=int(nbytes.item(src % len(nbytes))),
        begin=max(posted),
        end=end,
        channel=channel.channel,
        collective=channel.index,
        src_posted=posted[0],
        dst_posted=posted[1],
    )


def path_by_steps(runs: Iterable[tuple[float, MaxPlusRun]], spans: Iterable[Span], finished: Floats) -> list[Leg]:
    """Return the critical path of ``runs`` and ``spans``, in chronological order.

    Each run is paired with its start time in seconds, and ends later than the previous run. Rank r ends at
    ``finished[r]``. The path equals the result of ``collectives.records.waits.critical_path`` with all messages.
    """
    work, legs = _Work(runs, spans), list[Message | Span]()
    for end in sorted(set(finished.tolist()), reverse=True):  # a rank without work may end last
        legs = [leg for rank in np.flatnonzero(finished == end).tolist() for leg in work.until(rank, end)]
        if legs:
            break
    latest = max((leg.end for leg in legs), default=inf)
    path, now = list[Leg](), [leg for leg in legs if leg.end == latest]
    while now:
        leg = min(now, key=_precedence)
        path.append(_leg(leg))
        now = work.until(_late_rank(leg), leg.begin)
    return path[::-1]


class _Work:
    """Finds the messages and computations that ended at a given time on a rank, in and between consecutive runs."""

    def __init__(self, runs: Iterable[tuple[float, MaxPlusRun]], spans: Iterable[Span]) -> None:
        self.runs = list(runs)
        self._known: dict[ChannelRun, tuple[int, int, list[Message | Span]]] = {}  # rank, step, legs
        self.begins = [begin for begin, _ in self.runs]
        self.ends = [begin + float(run.finished.max()) for begin, run in self.runs]
        self.spans: dict[int, list[Span]] = {}
        for span in sorted(spans, key=lambda span: span.end):
            self.spans.setdefault(span.rank, []).append(span)

    def until(self, rank: int, time: float) -> list[Message | Span]:
        within = time * ROUNDING
        spans = self.spans.get(rank, [])
        first = bisect_left(spans, time - within, key=lambda span: span.end)
        legs: list[Message | Span] = [*spans[first : bisect_right(spans, time + within, key=lambda span: span.end)]]
        for place in range(bisect_left(self.ends, time - within), bisect_left(self.begins, time)):
            base, run = self.runs[place]
            for channel in run.channels:
                for leg in self._legs_until(channel, rank, time - base, within):
                    if time - within <= base + leg.end <= time + within and base + leg.begin < time:
                        legs.append(_later(leg, base))
        return [leg for leg in legs if leg.begin < time]

    def _legs_until(self, channel: ChannelRun, rank: int, time: float, within: float) -> Iterator[Message | Span]:
        begun = channel.begun[:, rank]
        for step in range(int(begun[1:].searchsorted(time - within)), int(begun[:-1].searchsorted(time))):
            known = self._known.get(channel)
            if known is None or known[:2] != (rank, step):  # a path often stays in one step
                known = self._known[channel] = rank, step, list(_legs(channel, rank, step))
            yield from known[2]


def _later(leg: Message | Span, seconds: float) -> Message | Span:
    begin, end = leg.begin + seconds, leg.end + seconds
    if isinstance(leg, Span):
        return leg._replace(begin=begin, end=end)
    posted = {"src_posted": leg.src_posted + seconds, "dst_posted": leg.dst_posted + seconds}
    return leg._replace(begin=begin, end=end, **posted)


def _precedence(leg: Message | Span) -> tuple[float, ...]:
    """Return a sort key of legs that end at the same time. The leg that began last comes first."""
    if isinstance(leg, Message):
        return -leg.begin, leg.src, leg.dst, leg.collective, leg.channel, leg.step, leg.chunk
    return -leg.begin, leg.rank, leg.rank, leg.collective, leg.channel, leg.step, 0


def _late_rank(leg: Message | Span) -> int:
    """Return the rank that posted its send or receive last, which determined when a leg began."""
    if isinstance(leg, Span):
        return leg.rank
    return leg.src if leg.dst_posted <= leg.src_posted else leg.dst


def _leg(leg: Message | Span) -> Leg:
    if isinstance(leg, Message):
        return Leg("message", leg.src, leg.dst, leg.begin, leg.end)
    return Leg(leg.name, leg.rank, leg.rank, leg.begin, leg.end)
