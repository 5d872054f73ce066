"""Compute the time that ranks of a run wait for each other, and the run's critical path.

The critical path is the sequence of messages and computing that determines when the run ends. Its time is divided into
message latency, link bandwidth, computing and waiting.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from collectives.records.columns import Bools, Floats, Ints
from collectives.records.link_loads import LinkLoads, link_loads
from collectives.records.trace import Trace

ROUNDING = 1e-12  # relative error of a time
SPARSE = 4  # from this number of pairs of ranks per wait on, only pairs that occur are counted


class Leg(NamedTuple):
    """A message or a computing phase on the critical path. For a computing phase, ``src`` and ``dst`` are equal."""

    name: str  # "message", or the name of the span
    src: int
    dst: int
    begin: float
    end: float
    number: int = -1  # index of the message or span in its Trace

    @property
    def seconds(self) -> float:
        return self.end - self.begin


def waiting_seconds(trace: Trace) -> dict[tuple[int, int], float]:
    """Return the seconds that each rank waited for each peer to post a matching operation, keyed by (rank, peer)."""
    messages, begin = trace.messages, trace.messages.begin
    src, dst = messages.src, messages.dst
    pair = np.concatenate([src, dst]) * trace.world_size + np.concatenate([dst, src])
    waited = np.concatenate([begin - messages.src_posted, begin - messages.dst_posted])
    pair, waited = pair[waited > 0], waited[waited > 0]
    if trace.world_size**2 <= SPARSE * len(pair):  # counts without sorting
        totals = np.bincount(pair, waited, trace.world_size**2)
        pairs = np.flatnonzero(totals > 0)
        seconds = totals[pairs]
    else:
        pairs, where = np.unique(pair, return_inverse=True)
        seconds = np.bincount(where, waited, len(pairs))
    return {
        divmod(number, trace.world_size): total for number, total in zip(pairs.tolist(), seconds.tolist(), strict=True)
    }


def critical_path(trace: Trace, *, over_gaps: bool = False) -> list[Leg]:
    """Return the messages and computing phases that determine when the run ends, in order of time.

    The search starts with the message or phase that ends last and goes backwards. A message begins when the later one
    of its two ranks posts it. On this rank, the search continues with the message or phase that ended at that time. If
    there is none, the search stops, unless ``over_gaps`` is True. In that case, it continues with the last earlier
    message or phase of the rank. Measured runs need this, because their ranks also wait for CPU cores.
    """
    legs = _Legs(trace)
    number, path = legs.last(), list[Leg]()
    while number is not None:
        path.append(legs.leg(number))
        number = legs.before(number, over_gaps)
    return path[::-1]


class _Legs:
    """The messages of a trace, and then its spans, in common arrays. Spans with the name "sync" are omitted."""

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
        """Group the messages and spans by rank. A message belongs to two ranks."""
        takes = np.flatnonzero(self.end > self.begin)
        joins = takes[self.src[takes] != self.dst[takes]]
        rank = np.concatenate([self.src[takes], self.dst[joins]])
        short = rank.astype(np.min_scalar_type(world_size))  # short types sort faster
        self.by_rank: Ints = np.concatenate([takes, joins])[np.argsort(short, kind="stable")]
        self.first: Ints = np.append(0, np.cumsum(np.bincount(rank, minlength=world_size)))
        self.by_end: dict[int, tuple[Ints, Floats]] = {}

    def _of(self, rank: int) -> tuple[Ints, Floats]:
        if rank not in self.by_end:
            legs = self.by_rank[self.first[rank] : self.first[rank + 1]]
            legs = legs[np.argsort(self.end[legs], kind="stable")]  # fast, because the legs are nearly in order
            self.by_end[rank] = legs, self.end[legs]
        return self.by_end[rank]

    def last(self) -> int | None:
        return self._latest(np.flatnonzero(self.end == self.end.max())) if len(self.end) else None

    def before(self, leg: int, over_gaps: bool) -> int | None:
        """Return the message or span that ended when ``leg`` began, on the rank that determined this time.

        If there are several, return the one that began last. If there is none, return None, or the last one that ended
        earlier if ``over_gaps`` is True.
        """
        time, (legs, ends) = self.begin[leg], self._of(int(self.late[leg]))
        within = time * ROUNDING
        from_, to = ends.searchsorted(time - within), ends.searchsorted(time + within, side="right")
        if over_gaps and from_ == to > 0:
            from_ = ends.searchsorted(ends[to - 1])
        return self._latest(legs[from_:to][self.begin[legs[from_:to]] < time])

    def _latest(self, legs: Ints) -> int | None:
        """Return the leg that began last, or None if there is none. The lowest sender wins ties, then the receiver."""
        for column, best in ((self.begin, np.max), (self.src, np.min), (self.dst, np.min)):
            if len(legs) > 1:
                legs = legs[column[legs] == best(column[legs])]
        if len(legs) == 1:
            return int(legs[0])
        return min(legs.tolist(), key=self._place, default=None)

    def _place(self, leg: int) -> tuple[int, ...]:
        if leg < self.spans_from:
            columns = self.trace.messages.kept
            return tuple(int(columns[name][leg]) for name in ("collective", "channel", "step", "chunk"))
        columns, index = self.trace.spans.kept, int(self.kept[leg - self.spans_from])
        return tuple(int(columns[name][index]) for name in ("collective", "channel", "step", "name"))

    def leg(self, number: int) -> Leg:
        name, index = "message", number
        if number >= self.spans_from:
            index = int(self.kept[number - self.spans_from])
            name = self.trace.spans[index].name
        ends = int(self.src[number]), int(self.dst[number])
        return Leg(name, *ends, float(self.begin[number]), float(self.end[number]), index)


NEARLY = 0.95  # share of the fullest link's load that counts as equally full


class PathStretch(NamedTuple):
    """A section of the critical path. ``begin`` and ``end`` are in seconds from the start of the run.

    If ``kind`` is "bandwidth", ``name`` is a link such as "h0 → s0". If it is "computing", ``name`` is a span's name.
    """

    kind: Literal["latency", "bandwidth", "computing", "waiting"]
    name: str
    begin: float
    end: float


def divide_path(trace: Trace) -> list[PathStretch]:
    """Divide the critical path into latency, bandwidth, computing and waiting, in order of time.

    A message counts as latency during the latency of its route, and then as bandwidth of the fullest link on its route.
    If the route is unknown, all of the message counts as bandwidth, with an empty name. Time without a message or phase
    is waiting.
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
    """Return the link of a route with the highest load between two times, or -1 if the route is empty.

    If the loads of several links are nearly equal, return the one that is used most over the whole run.
    """
    if not route:
        return -1
    fullness = [float(loads.mean_share(link, begin, end)) for link in route]
    nearly = [link for link, full in zip(route, fullness, strict=True) if full >= NEARLY * max(fullness)]
    return max(nearly, key=lambda link: float(loads.use[link]))
