"""Who waited for whom in a max-plus run, and the chain of work that its end waited for, without a list of messages."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from math import inf
from typing import Any, NamedTuple

import numpy as np

from collectives.records.messages import Message
from collectives.records.spans import Span
from collectives.records.waits import ROUNDING, Leg
from simcomm.compiled.kernel.arrays import Floats
from simcomm.compiled.shortcuts.step_times import ChannelRun, StepRun

MANY = 16  # rows of a step from which on arrays say sooner which of them counts
AT_ONCE = 1_000_000  # times that are subtracted from each other at once, which bounds the memory for that


def waited_by_steps(runs: Iterable[StepRun]) -> dict[tuple[int, int], float]:
    """Return how long each rank waited, with its half of a message posted, for a peer's half: by (rank, peer).

    In all of the runs together, which are of the same ranks.
    """
    pairs, seconds, p = [np.zeros(0, np.int64)], [np.zeros(0)], 1
    for channel in (channel for run in runs for channel in run.channels):
        p = channel.begun.shape[1]
        ranks = np.arange(p)
        for away in np.unique(channel.rows.away[channel.rows.sends]).tolist():
            peers = (ranks + away) % p
            for late, earlier, later in zip(_lateness(channel, away), (ranks, peers), (peers, ranks), strict=True):
                pairs.append(earlier * p + later)
                seconds.append(late)
    pair, waited = np.concatenate(pairs), np.concatenate(seconds)
    found, where = np.unique(pair[waited > 0], return_inverse=True)
    sums = np.bincount(where, waited[waited > 0], len(found))
    return {divmod(number, p): each for number, each in zip(found.tolist(), sums.tolist(), strict=True)}


def _lateness(channel: ChannelRun, away: int) -> tuple[Floats, Floats]:
    """Return how long ranks waited for those so far up the ring to receive, and these for them to send; [ranks]."""
    sends = np.flatnonzero(channel.rows.sends & (channel.rows.away == away))
    p = channel.begun.shape[1]
    for_receiver, for_sender = np.zeros(p), np.zeros(p)
    for begin in range(0, len(sends), max(1, AT_ONCE // p)):
        rows = sends[begin : begin + max(1, AT_ONCE // p)]
        posted = channel.begun[channel.step[rows]]
        later = np.roll(posted, -away, axis=1)
        later -= posted
        later *= channel.nbytes(rows) > 0
        for_receiver += np.maximum(later, 0.0).sum(axis=0)
        for_sender -= np.minimum(later, 0.0).sum(axis=0)
    return for_receiver, for_sender


def path_by_steps(runs: Iterable[tuple[float, StepRun]], spans: Iterable[Span], finished: Floats) -> list[Leg]:
    """Return the critical path of what ranks did, the first leg first.

    That are ``runs``, each from so many seconds on and ended later than the one before, and ``spans``; rank r ends at
    ``finished[r]``. It is the path that ``collectives.records.waits.critical_path`` finds among all messages.
    """
    work, legs = _Work(runs, spans), list[Message | Span]()
    for end in sorted(set(finished.tolist()), reverse=True):  # a rank that does nothing may come last
        legs = [
            leg for rank in np.flatnonzero(finished == end).tolist() for leg in work.until(rank, end, ends_last=True)
        ]
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
    """What took the ranks time: runs, which follow each other, and what each rank did beside them."""

    def __init__(self, runs: Iterable[tuple[float, StepRun]], spans: Iterable[Span]) -> None:
        self.runs = list(runs)
        self.begins = [begin for begin, _ in self.runs]
        self.ends = [begin + float(run.finished.max()) for begin, run in self.runs]
        self.spans: dict[int, list[Span]] = {}
        for span in sorted(spans, key=lambda span: span.end):
            self.spans.setdefault(span.rank, []).append(span)

    def until(self, rank: int, time: float, *, ends_last: bool = False) -> list[Message | Span]:
        """Return what took a rank time and ended at ``time`` but for rounding.

        Of many legs in a step that is the one of precedence; with ``ends_last`` of those that ended last of all.
        """
        within = time * ROUNDING
        spans = self.spans.get(rank, [])
        first = bisect_left(spans, time - within, key=lambda span: span.end)
        found: list[Message | Span] = [*spans[first : bisect_right(spans, time + within, key=lambda span: span.end)]]
        for place in range(bisect_left(self.ends, time - within), bisect_left(self.begins, time)):
            base, run = self.runs[place]
            moment = _Moment(base, time, within)
            for channel in run.channels:
                found += (_later(leg, base) for leg in _near(channel, rank, moment, ends_last))
        return [leg for leg in found if time - within <= leg.end <= time + within and leg.begin < time]


class _Moment(NamedTuple):
    """A time, how near to it counts as then, and when the run began in which it is looked for; in seconds."""

    base: float
    time: float
    within: float


def _near(channel: ChannelRun, rank: int, moment: _Moment, ends_last: bool) -> Iterator[Message | Span]:
    """Yield what a rank did in the steps of a channel that it had begun and had not ended before a moment."""
    begun, rows, time = channel.begun[:, rank], channel.rows.first, moment.time - moment.base
    first, end = begun[1:].searchsorted(time - moment.within), begun[:-1].searchsorted(time)
    for step in range(first, end):
        if rows[step + 1] - rows[step] > MANY:
            yield from _of_precedence(channel, rank, step, moment, ends_last)
        else:
            yield from channel.legs(rank, step)


def _of_precedence(
    channel: ChannelRun, rank: int, step: int, moment: _Moment, ends_last: bool
) -> Iterator[Message | Span]:
    """Yield, of what a rank did in a step, what ended at a moment and has precedence; several that differ in chunks."""
    times = channel.leg_times(rank, step)
    begin, end = times.begin + moment.base, times.end + moment.base
    is_near = (end >= moment.time - moment.within) & (end <= moment.time + moment.within)
    found = np.flatnonzero(is_near & (begin < moment.time))
    rules: list[Any] = [(begin, np.max), (times.src, np.min), (times.dst, np.min)]
    for column, best in [(end, np.max), *rules] if ends_last else rules:
        if len(found) > 1:
            found = found[column[found] == best(column[found])]
    return (channel.leg(times, at) for at in found.tolist())


def _later(leg: Message | Span, seconds: float) -> Message | Span:
    """Return what took time so much later."""
    begin, end = leg.begin + seconds, leg.end + seconds
    if isinstance(leg, Span):
        return leg._replace(begin=begin, end=end)
    posted = {"src_posted": leg.src_posted + seconds, "dst_posted": leg.dst_posted + seconds}
    return leg._replace(begin=begin, end=end, **posted)


def _precedence(leg: Message | Span) -> tuple[float, ...]:
    """Return what is least for the leg to be taken of those that end together: the one that began last."""
    if isinstance(leg, Message):
        return -leg.begin, leg.src, leg.dst, leg.collective, leg.channel, leg.step, leg.chunk
    return -leg.begin, leg.rank, leg.rank, leg.collective, leg.channel, leg.step, 0


def _late_rank(leg: Message | Span) -> int:
    """Return the rank that a leg waited for to begin."""
    if isinstance(leg, Span):
        return leg.rank
    return leg.src if leg.dst_posted <= leg.src_posted else leg.dst


def _leg(one: Message | Span) -> Leg:
    if isinstance(one, Message):
        return Leg("message", one.src, one.dst, one.begin, one.end)
    return Leg(one.name, one.rank, one.rank, one.begin, one.end)
