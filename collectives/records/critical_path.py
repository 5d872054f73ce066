"""The critical path of a run, divided: the latency of messages, the bandwidth of links, computing, and waiting.

Beside its prediction it says where a measured run was slower or quicker, hop by hop: the times along the same chain in
the predicted trace add up to when its last message should have ended, so that the differences of the parts are the
whole difference.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from collectives.records.link_loads import LinkLoads, link_loads
from collectives.records.messages import Message
from collectives.records.trace import Trace
from collectives.records.waits import critical_path
from collectives.units import format_time

NEARLY = 0.95  # of the fullest link's fullness: as full
SMALL = 4096  # bytes: up to here software takes longer than links
BEGIN, BETWEEN, SMALL_MESSAGES, LINKS = "ranks begin", "between messages", "small messages", "links"
Name = tuple[int, int, int, int, int, int]  # collective, sender, receiver, channel, step, chunk


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


class Lateness(NamedTuple):
    """What a measured run took longer than predicted along its own chain, in seconds; less where it is negative."""

    begin: float  # until the first message of the chain was posted
    between: float  # from the end of a message to when the next was posted: ranks, which wait for cores
    small: float  # of messages of ``SMALL`` bytes and less, while both halves were posted
    links: float  # of larger messages
    where: str  # the hop that is furthest from its prediction

    @property
    def whole(self) -> float:
        """Seconds in all."""
        return self.begin + self.between + self.small + self.links

    @property
    def cause(self) -> str:
        """The part that explains most of the whole."""
        parts = {BEGIN: self.begin, BETWEEN: self.between, SMALL_MESSAGES: self.small, LINKS: self.links}
        return max(parts, key=lambda name: parts[name] * (1 if self.whole >= 0 else -1))


def find_lateness(predicted: Trace, measured: Trace) -> Lateness | None:
    """Return where a measured run differs from its prediction; None where their messages are not the same.

    >>> first, late = Message(0, 1, 0, 0, 64, 0.0, 1.0), Message(0, 1, 0, 0, 64, 0.5, 1.5)
    >>> then, slow = Message(1, 2, 1, 0, 1 << 20, 1.0, 3.0), Message(1, 2, 1, 0, 1 << 20, 1.5, 7.5)
    >>> model, real = (Trace("one", "measured", 3, 9.0, pair) for pair in ([first, then], [late, slow]))
    >>> find_lateness(model, real)
    Lateness(begin=0.5, between=0.0, small=0.0, links=4.0, where='1 -> 2, step 1: 6 s, not 2 s')
    """
    model = {_name(one): one for one in predicted.messages}
    if not measured.messages or model.keys() != {_name(one) for one in measured.messages}:
        return None
    chain = [measured.messages[leg.number] for leg in critical_path(measured, over_gaps=True) if leg.name == "message"]
    parts = dict.fromkeys((BEGIN, BETWEEN, SMALL_MESSAGES, LINKS), 0.0)
    worst, where, ends = 0.0, "", (0.0, 0.0)
    for place, real in enumerate(chain):
        other = model[_name(real)]
        gap = (real.begin - ends[0]) - (other.begin - ends[1])
        more = (real.end - real.begin) - (other.end - other.begin)
        parts[BETWEEN if place else BEGIN] += gap
        parts[SMALL_MESSAGES if real.nbytes <= SMALL else LINKS] += more
        if max(abs(more), abs(gap)) > worst:
            worst, where = max(abs(more), abs(gap)), _describe(real, other, ends, abs(more) >= abs(gap))
        ends = real.end, other.end
    return Lateness(parts[BEGIN], parts[BETWEEN], parts[SMALL_MESSAGES], parts[LINKS], where)


def _name(message: Message) -> Name:
    return message.collective, message.src, message.dst, message.channel, message.step, message.chunk


def _describe(real: Message, model: Message, before: tuple[float, float], in_message: bool) -> str:
    name = f"{real.src} -> {real.dst}, step {real.step}"
    if in_message:
        return f"{name}: {format_time(real.end - real.begin)}, not {format_time(model.end - model.begin)}"
    late, expected = real.begin - before[0], model.begin - before[1]
    return f"{name} begins {format_time(late)} after what was before, not {format_time(expected)}"
