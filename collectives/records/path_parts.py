"""The critical path of a run, divided: the latency of messages, the bandwidth of links, computing, and waiting."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from collectives.records.link_loads import LinkLoads, link_loads
from collectives.records.trace import Trace
from collectives.records.waits import critical_path

NEARLY = 0.95  # of the fullest link's fullness: as full


class PathPart(NamedTuple):
    """A stretch of the critical path, in seconds from the start.

    ``name`` is of a link, as in "h0 → s0", where the kind is bandwidth, and of a span where it is computing.
    """

    kind: Literal["latency", "bandwidth", "computing", "waiting"]
    name: str
    begin: float
    end: float


def divide_path(trace: Trace) -> list[PathPart]:
    """Return the parts of the critical path, one after the other from the start of the run to its end.

    A message is latency first, as long as its route has any, then the bandwidth of the link that was fullest while it
    flowed; without a known route all of it is bandwidth, of no named link. What is between two legs is waiting.

    >>> from collectives.records.messages import Message
    >>> from collectives.records.trace import TracedLink
    >>> message = Message(0, 1, 0, 0, 900, 0.0, 1.0, ("a", "b"))
    >>> trace = Trace("one", "predicted", 2, 1.0, [message], links=[TracedLink("a", "b", 1000.0, 0.1, 900.0)])
    >>> [(part.kind, part.name, part.begin, part.end) for part in divide_path(trace)]
    [('latency', '', 0.0, 0.1), ('bandwidth', 'a → b', 0.1, 1.0)]
    """
    loads = link_loads(trace) if trace.links else None
    routes = trace.messages.route
    parts: list[PathPart] = []
    at = 0.0
    for leg in critical_path(trace):
        if leg.begin > at:
            parts.append(PathPart("waiting", "", at, leg.begin))
        begin, at = max(leg.begin, at), max(leg.end, at)
        if leg.name != "message":
            parts.append(PathPart("computing", leg.name, begin, at))
            continue
        route = loads.routes[routes[leg.number]] if loads else []
        flows = min(begin + sum(trace.links[link].latency for link in route), at)
        link = -1 if loads is None else fullest_link(loads, route, leg.begin, leg.end)
        name = "" if link < 0 else f"{trace.links[link].src} → {trace.links[link].dst}"
        parts += [PathPart("latency", "", begin, flows), PathPart("bandwidth", name, flows, at)]
    if trace.elapsed > at:
        parts.append(PathPart("waiting", "", at, trace.elapsed))
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
