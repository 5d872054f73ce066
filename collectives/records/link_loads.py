"""Compute the load of each link over time from the messages of a Trace."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from collectives.records.columns import Floats, Ints
from collectives.records.trace import Trace

INSTANT_S = 1e-15  # minimum duration in a division
TOGETHER = 8  # maximum number of consecutive messages for a rate
AT_ONCE = 1 << 15  # crossings that are processed at once, so that they stay in the CPU cache


@dataclass(frozen=True)
class LinkRoutes:
    """Routes by number. Route r crosses the links ``link[first[r]:first[r + 1]]``."""

    first: Ints  # [routes + 1]
    link: Ints

    def __getitem__(self, route: int) -> list[int]:
        """Return the links of a route, or an empty list if the route is unknown."""
        return list(self.link[self.first[route] : self.first[route + 1]].tolist())

    def crossings(self, route: Ints) -> tuple[Ints, Ints]:
        """Return two arrays, message and link, with one entry for each link that each message crosses.

        ``route`` contains the route of each message. The arrays are sorted by message.
        """
        hops = np.diff(self.first)[route]
        message = np.repeat(np.arange(len(route)), hops)
        before_it = self.first[:-1][route] - (np.cumsum(hops) - hops)
        return message, self.link[np.repeat(before_it, hops) + np.arange(len(message))]

    @property
    def hops(self) -> Ints:
        """The route to which each entry of ``link`` belongs."""
        return np.repeat(np.arange(len(self.first) - 1), np.diff(self.first))


def link_routes(trace: Trace) -> LinkRoutes:
    """Return the links of each route in a trace. A route is empty if the trace does not contain all of its links."""
    numbers = {(link.src, link.dst): number for number, link in enumerate(trace.links)}
    routes = LinkRoutes(*trace.messages.routes.links(numbers))
    hops = np.diff(routes.first)
    unknown = np.bincount(routes.hops, routes.link < 0, len(hops)) > 0
    hop_counts = np.where(unknown, 0, hops)
    return LinkRoutes(np.append(0, np.cumsum(hop_counts)), routes.link[np.repeat(~unknown, hops)])


@dataclass(frozen=True)
class LinkLoads:
    """The load of each link of a Trace over time. Shares are relative to the link's nominal bandwidth.

    A message is assumed to cross its links at a constant rate, from the end of the route's latency until it arrives.
    """

    use: Floats  # bytes that crossed the link, as a share of its capacity in the whole run
    busy: Floats  # share of the time during which the link carries a message
    peak: Floats  # highest rate over some consecutive messages
    most: Ints  # maximum number of messages at the same time
    first: Ints  # [links + 1]: start of each link's entries in ``time`` and ``load``
    time: Floats
    load: Floats  # bytes per second from ``time`` to the next time
    carried: Floats  # bytes until ``time``, plus a constant per link
    capacity: Floats  # nominal bytes per second; infinite if unknown
    routes: LinkRoutes  # routes of the messages

    def mean_share(self, link: int, begin: Floats | float, end: Floats | float) -> Floats:
        """Return the mean load of a link from ``begin`` to ``end`` (in seconds), as a share of its bandwidth."""
        mine = slice(self.first[link], self.first[link + 1])
        time, carried = self.time[mine], self.carried[mine]
        if not len(time):
            return np.zeros_like(np.asarray(begin, float))
        between = np.interp(end, time, carried) - np.interp(begin, time, carried)
        return np.asarray(between / np.maximum(np.subtract(end, begin), INSTANT_S) / self.capacity[link])


@dataclass(frozen=True)
class _Crossings:
    """Arrays with one entry for each link that a message crosses, sorted by link."""

    first: Ints  # [links + 1]: start of each link's crossings
    link: Ints  # index, counted from the first of these links
    start: Floats  # start of the transfer
    end: Floats
    nbytes: Ints
    rate: Floats  # bytes per second
    share: Floats  # the rate divided by the capacity of the route's narrowest link

    def greatest(self, values: Floats | Ints, first: Ints) -> Floats:
        greatest_values, used = np.zeros(len(first) - 1), np.flatnonzero(np.diff(first))
        greatest_values[used] = np.maximum.reduceat(values, first[used]) if len(used) else 0.0
        return greatest_values


def link_loads(trace: Trace) -> LinkLoads:
    """Return the loads of all links of a trace."""
    count, routes = len(trace.links), link_routes(trace)
    capacity = np.array([link.bandwidth for link in trace.links])
    capacity = np.where((capacity > 0) & np.isfinite(capacity), capacity, np.inf)
    nbytes = np.array([link.nbytes for link in trace.links], float)
    message, first = _by_link(trace, routes)
    busy, peak, share, most = np.zeros((4, count))
    time, load, carried = np.zeros((3, 2 * len(message)))
    for links, part in _split(trace, routes, capacity, message, first):
        mine = slice(2 * first[links.start], 2 * first[links.stop])
        time[mine], load[mine], flowing = _events(part)
        lasting = np.append(np.diff(time[mine]), 0.0)
        ends = 2 * part.first[1:]
        lasting[ends[ends > 2 * part.first[:-1]] - 1] = 0.0
        carried[mine] = np.cumsum(load[mine] * lasting) - load[mine] * lasting
        most[links] = part.greatest(flowing, 2 * part.first)
        busy[links] = np.bincount(np.repeat(part.link, 2), lasting * (flowing > 0), len(ends)) / trace.elapsed
        peak[links] = part.greatest(_greatest_rates(part), part.first)
        share[links] = part.greatest(part.share, part.first)
    peak = np.maximum(peak / capacity, share)
    use = nbytes / capacity / trace.elapsed  # the product of the divisors can overflow
    return LinkLoads(
        use=use,
        busy=busy,
        peak=peak,
        most=most.astype(np.int64),
        first=2 * first,
        time=time,
        load=load,
        carried=carried,
        capacity=capacity,
        routes=routes,
    )


def _by_link(trace: Trace, routes: LinkRoutes) -> tuple[Ints, Ints]:
    message, link = routes.crossings(trace.messages.route)
    order = np.argsort(link.astype(np.min_scalar_type(len(trace.links))), kind="stable")  # short types sort faster
    return message[order], np.append(0, np.cumsum(np.bincount(link, minlength=len(trace.links))))


def _split(
    trace: Trace, routes: LinkRoutes, capacity: Floats, message: Ints, first: Ints
) -> Iterator[tuple[slice, _Crossings]]:
    """Yield ranges of links and the crossings of these links, with about ``AT_ONCE`` crossings per range."""
    messages = trace.messages
    route, begin, end, nbytes = messages.route, messages.begin, messages.end, messages.nbytes
    latency, narrowest = np.array([link.latency for link in trace.links], float), np.full(len(routes.first) - 1, np.inf)
    delay = np.bincount(routes.hops, latency[routes.link], len(narrowest))  # seconds of each route
    np.minimum.at(narrowest, routes.hops, capacity[routes.link])
    cuts = np.append(np.flatnonzero(np.diff(first[:-1] // AT_ONCE, prepend=-1)), len(first) - 1)
    for cut, other in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
        mine = message[first[cut] : first[other]]
        starts = first[cut : other + 1] - first[cut]
        ends, sizes, ways = end[mine], nbytes[mine], route[mine]
        start = np.minimum(begin[mine] + delay[ways], ends)
        rate = sizes / np.maximum(ends - start, INSTANT_S)
        link = np.repeat(np.arange(other - cut), np.diff(starts))
        yield slice(cut, other), _Crossings(starts, link, start, ends, sizes, rate, rate / narrowest[ways])


def _greatest_rates(part: _Crossings) -> Floats:
    """Return lower bounds on the peak rate of a link, each from up to ``TOGETHER`` consecutive messages.

    A bound is the size of consecutive messages, divided by the time from the start of the first one to the latest end.
    The rates of single messages cannot be added, because each is a mean over a different time.
    """
    order = _order(part.link, part.start)  # the order of links stays, so ``part.link`` stays valid
    start, end, nbytes = part.start[order], part.end[order], part.nbytes[order]
    last, total = end.copy(), nbytes.astype(float)
    best = total / np.maximum(last - start, INSTANT_S)
    for apart in range(1, min(TOGETHER, len(order))):
        until = len(order) - apart
        on_one = part.link[:until] == part.link[apart:]
        np.maximum(last[:until], end[apart:], out=last[:until], where=on_one)
        np.add(total[:until], nbytes[apart:], out=total[:until], where=on_one)
        np.maximum(best, total / np.maximum(last - start, INSTANT_S), out=best)
    return best


def _events(part: _Crossings) -> tuple[Floats, Floats, Ints]:
    """Return the times at which messages start or end, and the load in bytes/s and number of messages after each."""
    number = len(part.link)
    links, times = np.concatenate([part.link, part.link]), np.concatenate([part.end, part.start])
    rate = np.where(part.end > part.start, part.rate, 0.0)  # a message without duration would only add rounding errors
    changes = np.concatenate([-rate, rate])
    order = _order(links, times)  # at equal times, ends come first
    load, flowing = np.cumsum(changes[order]), np.cumsum(np.where(order < number, -1, 1))
    first = 2 * part.first
    before = np.where(first[:-1] > 0, load[first[:-1] - 1], 0.0) if number else np.zeros(len(first) - 1)
    load -= np.repeat(before, np.diff(first))
    return times[order], np.maximum(load, 0.0), flowing


def _order(link: Ints, time: Floats) -> Ints:
    by_time = np.argsort(time, kind="stable")
    short = link[by_time].astype(np.min_scalar_type(int(link.max(initial=0))))
    return np.asarray(by_time[np.argsort(short, kind="stable")])
