"""Who waited for whom in a max-plus run, and the chain of work that its end waited for, without a list of messages."""

from collections.abc import Iterator
from math import inf

import numpy as np

from collectives.records.messages import Message
from collectives.records.spans import Span
from collectives.records.waits import ROUNDING, Leg
from simcomm.compiled.kernel.arrays import Floats
from simcomm.compiled.shortcuts.step_times import ChannelRun, StepRun

AT_ONCE = 1_000_000  # times that are subtracted from each other at once, which bounds the memory for that


def waited_by_steps(run: StepRun) -> dict[tuple[int, int], float]:
    """Return how long each rank waited, with its half of a message posted, for a peer's half: by (rank, peer)."""
    p, ranks = len(run.finished), np.arange(len(run.finished))
    pairs, seconds = [np.zeros(0, np.int64)], [np.zeros(0)]
    for channel in run.channels:
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


def path_by_steps(run: StepRun, division: Floats) -> list[Leg]:
    """Return the critical path of a run, the first leg first.

    ``division`` [ranks] are the seconds for which each rank computes at the end. It is the path that
    ``collectives.records.waits.critical_path`` finds among all messages.
    """
    ends, legs = run.finished + division, list[Message | Span]()
    for end in sorted(set(ends.tolist()), reverse=True):  # a rank that does nothing may come last
        legs = [leg for rank in np.flatnonzero(ends == end).tolist() for leg in _legs_until(run, division, rank, end)]
        if legs:
            break
    latest = max((leg.end for leg in legs), default=inf)
    path, now = list[Message | Span](), [leg for leg in legs if leg.end == latest]
    while now:
        leg = min(now, key=_precedence)
        path.append(leg)
        now = _legs_until(run, division, _late_rank(leg), leg.begin)
    return [_leg(one) for one in reversed(path)]


def _leg(one: Message | Span) -> Leg:
    if isinstance(one, Message):
        return Leg("message", one.src, one.dst, one.begin, one.end)
    return Leg(one.name, one.rank, one.rank, one.begin, one.end)


def _precedence(leg: Message | Span) -> tuple[float, ...]:
    """Return what is least for the leg to be taken of those that end together: the one that began last."""
    if isinstance(leg, Message):
        return -leg.begin, leg.src, leg.dst, leg.channel, leg.step, leg.chunk
    return -leg.begin, leg.rank, leg.rank, leg.channel, leg.step, 0


def _late_rank(leg: Message | Span) -> int:
    """Return the rank that a leg waited for to begin."""
    if isinstance(leg, Span):
        return leg.rank
    return leg.src if leg.dst_posted <= leg.src_posted else leg.dst


def _legs_until(run: StepRun, division: Floats, rank: int, time: float) -> list[Message | Span]:
    """Return what took a rank time and ended at ``time`` but for rounding."""
    within = time * ROUNDING
    found = [leg for channel in run.channels for leg in _near(channel, rank, time, within)]
    end = float(run.finished[rank])
    if division[rank] > 0:
        found.append(Span(rank, "reduce", run.steps, end, end + float(division[rank]), collective=run.index))
    return [leg for leg in found if time - within <= leg.end <= time + within and leg.begin < time]


def _near(channel: ChannelRun, rank: int, time: float, within: float) -> Iterator[Message | Span]:
    """Yield what a rank did in the steps of a channel that it had begun and had not ended before a time."""
    begun = channel.begun[:, rank]
    first, end = begun[1:].searchsorted(time - within), begun[:-1].searchsorted(time)
    for step in range(first, end):
        yield from channel.legs(rank, step)
