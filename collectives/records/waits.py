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
        """How long it took."""
        return self.end - self.begin


def waiting_seconds(trace: Trace) -> dict[tuple[int, int], float]:
    """Return how long each rank waited, with its half of a message posted, for a peer's half: by (rank, peer).

    >>> late = Message(0, 1, 0, 0, 64, begin=3.0, end=4.0, src_waited=2.0)  # rank 1 posted its receive late
    >>> waiting_seconds(Trace("broadcast/naive", "predicted", 2, 4.0, [late]))
    {(0, 1): 2.0}
    """
    seconds: defaultdict[tuple[int, int], float] = defaultdict(float)
    for message in trace.messages:
        if message.src_waited > 0:
            seconds[message.src, message.dst] += message.src_waited
        if message.dst_waited > 0:
            seconds[message.dst, message.src] += message.dst_waited
    return dict(seconds)


def critical_path(trace: Trace) -> list[Leg]:
    """Return the chain of messages and computing that the end of the run waited for, the first leg first.

    It is found backwards: from the end of a message or of computing to its beginning, there to the rank that came
    last, and on to what that rank was busy with until then. It stops where a rank had nothing to wait for.

    >>> from collectives import Span
    >>> message = Message(0, 1, 0, 0, 64, begin=0.0, end=1.0)
    >>> trace = Trace("reduce/naive", "predicted", 2, 1.5, [message], [Span(1, "reduce", 0, 1.0, 1.5)])
    >>> [(leg.name, leg.seconds) for leg in critical_path(trace)]
    [('message', 1.0), ('reduce', 0.5)]
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
    """Return the legs, which are sorted by their ends, that end at this time but for rounding."""
    within = time * ROUNDING
    return legs[bisect_left(legs, time - within, key=_end) : bisect_right(legs, time + within, key=_end)]


def _end(leg: Leg) -> float:
    return leg.end


def _leg(message: Message) -> Leg:
    return Leg("message", message.src, message.dst, message.begin, message.end)
