"""Who waited for whom in a simulated run, and the chain of work that its end waited for."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from typing import NamedTuple

from collectives.records.trace import Message, Trace

ROUNDING = 1e-12  # of a time


class Leg(NamedTuple):
    """A stretch of the critical path: a message, or a rank that computes (then src == dst)."""

    name: str  # "message", or the name of the span
    src: int
    dst: int
    begin: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.begin


def waits(trace: Trace) -> dict[tuple[int, int], float]:
    """Seconds that ranks waited, with a message posted, for their peers to post the other half: by (rank, peer)."""
    seconds: defaultdict[tuple[int, int], float] = defaultdict(float)
    for message in trace.messages:
        if message.src_waited > 0:
            seconds[message.src, message.dst] += message.src_waited
        if message.dst_waited > 0:
            seconds[message.dst, message.src] += message.dst_waited
    return dict(seconds)


def critical_path(trace: Trace) -> list[Leg]:
    """What the last thing waited for, what that waited for, and so on, from the first leg to the last.

    It goes from the end of a message or of computing to its beginning, there to the rank that came last, and on to
    what that rank was busy with until then. It ends early where a rank's step had nothing to wait for.
    """
    legs = [Leg("message", m.src, m.dst, m.begin, m.end) for m in trace.messages]
    legs += [Leg(s.name, s.rank, s.rank, s.begin, s.end) for s in trace.spans if s.name != "sync"]
    ended: defaultdict[int, list[Leg]] = defaultdict(list)  # by rank
    late = {_leg(m): (m.src if m.src_waited <= m.dst_waited else m.dst) for m in trace.messages}
    for leg in sorted(legs, key=_end):
        if leg.seconds > 0:
            for rank in {leg.src, leg.dst}:
                ended[rank].append(leg)
    last = max(legs, key=lambda leg: (leg.end, leg.begin), default=None)
    path = []
    while last is not None:
        path.append(last)
        earlier = [leg for leg in _ended_at(ended[late.get(last, last.src)], last.begin) if leg.begin < last.begin]
        last = max(earlier, key=lambda leg: leg.begin, default=None)
    return path[::-1]


def _ended_at(legs: list[Leg], time: float) -> list[Leg]:
    """Those of legs in order that end at this time but for rounding."""
    within = time * ROUNDING
    return legs[bisect_left(legs, time - within, key=_end) : bisect_right(legs, time + within, key=_end)]


def _end(leg: Leg) -> float:
    return leg.end


def _leg(message: Message) -> Leg:
    return Leg("message", message.src, message.dst, message.begin, message.end)
