"""Find who waited for whom in a run, the chain of work that its end waited for (the critical path), and its parts.

The critical path is divided into the latency of messages, the bandwidth of links, computing, and waiting.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Literal, NamedTuple

import numpy as np

from collectives.errors import InputError
from collectives.quoting import quote
from collectives.records.columns import Bools, Floats, Ints
from collectives.records.link_loads import LinkLoads, link_loads
from collectives.records.trace import Trace

ROUNDING = 1e-12  # of a time
SPARSE = 4  # pairs of ranks for each wait from which on only those are looked at that occur


class Record(Enum):
    """The parts of a simulated run that are recorded."""

    MESSAGES = "messages, and all else"
    TIMES = "times only"
    WAITS = "who waited for whom; messages only where these have to say it"
    BRIEF_WAITS = "who waited for whom, if it is known without messages"

    @classmethod
    def of(cls, asked: "Record | bool") -> "Record":
        """Return the requested record: True for messages, False for times only. Raise InputError for other values.

        >>> Record.of(False)
        <Record.TIMES: 'times only'>
        """
        if isinstance(asked, bool):
            return cls.MESSAGES if asked else cls.TIMES
        if not isinstance(asked, cls):
            raise InputError(f"record is {quote(asked)}; give True, False or a Record")
        return asked

    @property
    def keeps_messages(self) -> bool:
        """Whether messages are recorded if nothing else has the requested facts."""
        return self in (Record.MESSAGES, Record.WAITS)


class Leg(NamedTuple):
    """A stretch of the critical path: a message, or a rank that computes (then src == dst)."""

    name: str  # "message", or the name of the span
    src: int
    dst: int
    begin: float
    end: float
    number: int = -1  # of the message, or of the span, in its Trace

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end - self.begin


@dataclass(repr=False)
class BriefTrace(Trace):
    """A run without messages, with the waiting times between ranks and the critical path."""

    waited: dict[tuple[int, int], float] = field(default_factory=dict)  # seconds, by (rank, peer)
    path: list[Leg] = field(default_factory=list)

    @classmethod
    def of(cls, trace: Trace, waited: dict[tuple[int, int], float], path: list[Leg]) -> "BriefTrace":
        """Return a trace with how long each rank waited for a peer, and its critical path."""
        return cls(
            **{one.name: getattr(trace, one.name) for one in fields(trace) if one.init}, waited=waited, path=path
        )


def waiting_seconds(trace: Trace) -> dict[tuple[int, int], float]:
    """Return how long each rank waited, with its half of a message posted, for a peer's half: by (rank, peer).

    >>> from collectives import Message
    >>> late = Message(0, 1, 0, 0, 64, begin=3.0, end=4.0, src_posted=1.0)  # rank 1 posted its receive late
    >>> waiting_seconds(Trace("broadcast/naive", "predicted", 2, 4.0, [late]))
    {(0, 1): 2.0}
    """
    if isinstance(trace, BriefTrace):
        return trace.waited
    messages, begin = trace.messages, trace.messages.begin
    src, dst = messages.src, messages.dst
    pair = np.concatenate([src, dst]) * trace.world_size + np.concatenate([dst, src])
    waited = np.concatenate([begin - messages.src_posted, begin - messages.dst_posted])
    pair, waited = pair[waited > 0], waited[waited > 0]
    if trace.world_size**2 <= SPARSE * len(pair):  # no need to sort them
        of_all = np.bincount(pair, waited, trace.world_size**2)
        pairs = np.flatnonzero(of_all > 0)
        seconds = of_all[pairs]
    else:
        pairs, where = np.unique(pair, return_inverse=True)
        seconds = np.bincount(where, waited, len(pairs))
    return {
        divmod(number, trace.world_size): each for number, each in zip(pairs.tolist(), seconds.tolist(), strict=True)
    }


def critical_path(trace: Trace, *, over_gaps: bool = False) -> list[Leg]:
    """Return the chain of messages and computing that the end of the run waited for, the first leg first.

    It is found backwards: from the end of a message or of computing to its beginning, there to the rank that came last,
    and to that rank's preceding work. It stops at a rank that had nothing to wait for. With ``over_gaps`` it continues
    with that rank's previous work, as in a measured run, where ranks also wait for cores.

    >>> from collectives import Message, Span
    >>> message = Message(0, 1, 0, 0, 64, begin=0.0, end=1.0)
    >>> trace = Trace("reduce/naive", "predicted", 2, 1.5, [message], [Span(1, "reduce", 0, 1.0, 1.5)])
    >>> [(leg.name, leg.seconds) for leg in critical_path(trace)]
    [('message', 1.0), ('reduce', 0.5)]
    """
    if isinstance(trace, BriefTrace):
        return trace.path
    work = _Legs(trace)
    at, path = work.last(), list[Leg]()
    while at is not None:
        path.append(work.leg(at))
        at = work.before(at, over_gaps)
    return path[::-1]


class _Legs:
    """All messages and spans of a trace as one list of legs, messages first, and the legs of each rank by end."""

    def __init__(self, trace: Trace) -> None:
        messages, spans = trace.messages, trace.spans
        self.trace, self.spans_from = trace, len(messages)
        self.kept = np.flatnonzero(~spans.named("sync"))
        rank = spans.rank[self.kept]
        begin = messages.begin
        self.begin: Floats = np.concatenate([begin, spans.begin[self.kept]])
        self.end: Floats = np.concatenate([messages.end, spans.end[self.kept]])
        self.src: Ints = np.concatenate([messages.src, rank])
        self.dst: Ints = np.concatenate([messages.dst, rank])
        sender_late: Bools = begin - messages.src_posted <= begin - messages.dst_posted
        self.late: Ints = np.concatenate([np.where(sender_late, messages.src, messages.dst), rank])
        self._sort(trace.world_size)

    def _sort(self, world_size: int) -> None:
        """Sort the legs of positive length by rank; a message belongs to two ranks. A rank's legs are sorted at its
        first use.
        """
        takes = np.flatnonzero(self.end > self.begin)
        joins = takes[self.src[takes] != self.dst[takes]]
        rank = np.concatenate([self.src[takes], self.dst[joins]])
        short = rank.astype(np.min_scalar_type(world_size))  # sorted much faster
        self.by_rank: Ints = np.concatenate([takes, joins])[np.argsort(short, kind="stable")]
        self.first: Ints = np.append(0, np.cumsum(np.bincount(rank, minlength=world_size)))
        self.by_end: dict[int, tuple[Ints, Floats]] = {}

    def _of(self, rank: int) -> tuple[Ints, Floats]:
        """Return the legs of a rank in order of their ends, and these ends."""
        if rank not in self.by_end:
            own = self.by_rank[self.first[rank] : self.first[rank + 1]]
            own = own[np.argsort(self.end[own], kind="stable")]  # what is nearly in order is sorted much faster
            self.by_end[rank] = own, self.end[own]
        return self.by_end[rank]

    def last(self) -> int | None:
        """Return the leg that ended last, of several the one that began last."""
        return self._latest(np.flatnonzero(self.end == self.end.max())) if len(self.end) else None

    def before(self, leg: int, over_gaps: bool) -> int | None:
        """Return the leg that the beginning of a leg waited for: of the legs that ended then, the one that began last.

        With ``over_gaps``, if none ended then, return the one that ended last before.
        """
        time, (own, ends) = self.begin[leg], self._of(int(self.late[leg]))
        within = time * ROUNDING
        from_, to = ends.searchsorted(time - within), ends.searchsorted(time + within, side="right")
        if over_gaps and from_ == to > 0:
            from_ = ends.searchsorted(ends[to - 1])
        return self._latest(own[from_:to][self.begin[own[from_:to]] < time])

    def _latest(self, legs: Ints) -> int | None:
        """Return the leg that began last; of several, the one with the lowest sender, in any order of ``legs``.

        Ties are broken by the lowest receiver, then by the first collective, channel, step and chunk.
        """
        for column, best in ((self.begin, np.max), (self.src, np.min), (self.dst, np.min)):
            if len(legs) > 1:
                legs = legs[column[legs] == best(column[legs])]
        if len(legs) == 1:
            return int(legs[0])
        return min(legs.tolist(), key=self._place, default=None)

    def _place(self, leg: int) -> tuple[int, ...]:
        """Return the sort key of a leg among the legs of its ranks."""
        if leg < self.spans_from:
            kept = self.trace.messages.kept
            return tuple(int(kept[name][leg]) for name in ("collective", "channel", "step", "chunk"))
        kept, index = self.trace.spans.kept, int(self.kept[leg - self.spans_from])
        return tuple(int(kept[name][index]) for name in ("collective", "channel", "step", "name"))

    def leg(self, number: int) -> Leg:
        """Return a leg as it is shown."""
        name, index = "message", number
        if number >= self.spans_from:
            index = int(self.kept[number - self.spans_from])
            name = self.trace.spans[index].name
        ends = int(self.src[number]), int(self.dst[number])
        return Leg(name, *ends, float(self.begin[number]), float(self.end[number]), index)


NEARLY = 0.95  # of the fullest link's fullness: as full


class PathStretch(NamedTuple):
    """A stretch of the critical path, in seconds from the start.

    ``name`` is of a link, as in "h0 → s0", where the kind is bandwidth, and of a span where it is computing.
    """

    kind: Literal["latency", "bandwidth", "computing", "waiting"]
    name: str
    begin: float
    end: float


def divide_path(trace: Trace) -> list[PathStretch]:
    """Return the parts of the critical path, one after the other from the start of the run to its end.

    A message is latency first, as long as its route has any. The rest is the bandwidth of the link that was fullest
    while it flowed. Without a known route, all of it is bandwidth, without a link's name. Time between two legs is
    waiting.

    >>> from collectives.records.messages import Message
    >>> from collectives.records.trace import TracedLink
    >>> message = Message(0, 1, 0, 0, 900, 0.0, 1.0, ("a", "b"))
    >>> trace = Trace("one", "predicted", 2, 1.0, [message], links=[TracedLink("a", "b", 1000.0, 0.1, 900.0)])
    >>> [(part.kind, part.name, part.begin, part.end) for part in divide_path(trace)]
    [('latency', '', 0.0, 0.1), ('bandwidth', 'a → b', 0.1, 1.0)]
    """
    loads = link_loads(trace) if trace.links else None
    routes = trace.messages.route
    parts: list[PathStretch] = []
    at = 0.0
    for leg in critical_path(trace):
        if leg.begin > at:
            parts.append(PathStretch("waiting", "", at, leg.begin))
        begin, at = max(leg.begin, at), max(leg.end, at)
        if leg.name != "message":
            parts.append(PathStretch("computing", leg.name, begin, at))
            continue
        route = loads.routes[routes[leg.number]] if loads else []
        flows = min(begin + sum(trace.links[link].latency for link in route), at)
        link = -1 if loads is None else fullest_link(loads, route, leg.begin, leg.end)
        name = "" if link < 0 else f"{trace.links[link].src} → {trace.links[link].dst}"
        parts += [PathStretch("latency", "", begin, flows), PathStretch("bandwidth", name, flows, at)]
    if trace.elapsed > at:
        parts.append(PathStretch("waiting", "", at, trace.elapsed))
    return [part for part in parts if part.end > part.begin]


def fullest_link(loads: LinkLoads, route: Sequence[int], begin: float, end: float) -> int:
    """Return the link of a route that was fullest between two times, of nearly equal ones the one used most overall.

    It is -1 for a route without links.
    """
    if not route:
        return -1
    fullness = [float(loads.mean_share(link, begin, end)) for link in route]
    nearly = [link for link, full in zip(route, fullness, strict=True) if full >= NEARLY * max(fullness)]
    return max(nearly, key=lambda link: float(loads.use[link]))
