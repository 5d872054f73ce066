"""How much each link of a Trace carried, and when: what the rule of ``limits`` and the pictures of links read."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collectives.records.message_arrays import MessageArrays
from collectives.records.trace import Trace

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

SHORTEST = 1e-9  # of the run: a load that lasts shorter is rounding
LEAST_SECONDS = 1e-15
TOGETHER = 8  # messages of which a greatest rate is looked for


@dataclass(frozen=True)
class LinkLoads:
    """By link, in the order of the Trace. Shares are of the nominal bandwidth, what a link should carry.

    A message takes its bytes over a link evenly, from when the latency of its route has passed to when it arrives.
    """

    use: Floats  # bytes that crossed, as a share of what could have in the whole run
    busy: Floats  # share of the time with a message on it
    peak: Floats  # bytes of some messages over the time that they took together, of those for which it was greatest
    most: Ints  # most messages at once
    first: Ints  # [links + 1]: where the loads of a link begin in ``time`` and ``load``
    time: Floats
    load: Floats  # bytes per second from ``time`` to the next
    carried: Floats  # bytes until ``time``, of all links before too
    capacity: Floats  # nominal, bytes per second; infinite where it is not known

    def mean_load(self, link: int, begin: Floats | float, end: Floats | float) -> Floats:
        """Return the mean load of a link, bytes per second, between times."""
        mine = slice(self.first[link], self.first[link + 1])
        time, carried = self.time[mine], self.carried[mine]
        if not len(time):
            return np.zeros_like(np.asarray(begin, float))
        between = np.interp(end, time, carried) - np.interp(begin, time, carried)
        return np.asarray(between / np.maximum(np.subtract(end, begin), LEAST_SECONDS))

    def mean_share(self, link: int, begin: Floats | float, end: Floats | float) -> Floats:
        """Return the mean load of a link as a share of its bandwidth, between times."""
        return np.asarray(self.mean_load(link, begin, end) / self.capacity[link])


def link_loads(trace: Trace, messages: MessageArrays) -> LinkLoads:
    """Return what each link of a trace carried.

    >>> from collectives.records.message_arrays import Message, message_arrays
    >>> from collectives.records.trace import TracedLink
    >>> message = Message(0, 1, 0, 0, 500, 0.0, 1.0, ("a", "b"))
    >>> trace = Trace("one", "predicted", 2, 1.0, [message], links=[TracedLink("a", "b", 1000.0, 0.0, 500.0)])
    >>> loads = link_loads(trace, message_arrays(trace))
    >>> loads.use.tolist(), loads.busy.tolist(), loads.peak.tolist()
    ([0.5], [1.0], [0.5])
    """
    count = len(trace.links)
    capacity = np.array([link.bandwidth for link in trace.links])
    capacity = np.where((capacity > 0) & np.isfinite(capacity), capacity, np.inf)
    carried = np.array([link.nbytes for link in trace.links], float)
    message, link = messages.crossings()
    start, rate = _rates(trace, messages)
    time, load, held, first = _events(link, start[message], messages.end[message], rate[message], count)
    lasting = np.append(np.diff(time), 0.0)
    lasting[first[1:][first[1:] > first[:-1]] - 1] = 0.0
    owner = np.repeat(np.arange(count), np.diff(first))
    carried_until = np.cumsum(load * lasting) - load * lasting
    most = np.zeros(count, np.int64)
    np.maximum.at(most, owner, held)
    peak = _greatest_rate(link, start[message], messages.end[message], messages.nbytes[message], count) / capacity
    alone = _share_of_route(messages, rate, capacity)
    np.maximum.at(peak, link, alone[message])
    busy = np.bincount(owner, lasting * (held > 0), count) / trace.elapsed
    return LinkLoads(carried / (capacity * trace.elapsed), busy, peak, most, first, time, load, carried_until, capacity)


def _rates(trace: Trace, messages: MessageArrays) -> tuple[Floats, Floats]:
    """Return when the bytes of each message begin to flow, and how many do a second."""
    latency = np.array([link.latency for link in trace.links])
    delay = np.array([latency[route].sum() if route else 0.0 for route in messages.routes])
    start = np.minimum(messages.begin + delay[messages.route], messages.end)
    return start, messages.nbytes / np.maximum(messages.end - start, LEAST_SECONDS)


def _share_of_route(messages: MessageArrays, rate: Floats, capacity: Floats) -> Floats:
    """Return the rate of each message as a share of what the narrowest link of its route carries."""
    narrowest = np.array([capacity[route].min() if route else np.inf for route in messages.routes])
    return np.asarray(rate / narrowest[messages.route])


def _greatest_rate(link: Ints, start: Floats, end: Floats, nbytes: Ints, count: int) -> Floats:
    """Return the most bytes per second that each link is sure to have carried, over up to ``TOGETHER`` messages.

    The bytes of messages that follow each other, from when the first begins to flow to when the last has arrived, have
    all crossed the link in that time. Rates of single messages do not add up so: each is a mean over another time.
    """
    order = _order(link, start, count)
    link, start, end, nbytes = link[order], start[order], end[order], nbytes[order]
    best, last, total = np.zeros(count), end.copy(), nbytes.astype(float)
    for apart in range(min(TOGETHER, len(link))):
        firsts = np.flatnonzero(link[: len(link) - apart] == link[apart:])  # of groups that are on one link
        if apart:
            last[firsts] = np.maximum(last[firsts], end[firsts + apart])
            total[firsts] += nbytes[firsts + apart]
        np.maximum.at(best, link[firsts], total[firsts] / np.maximum(last - start, LEAST_SECONDS)[firsts])
    return best


def _events(link: Ints, start: Floats, end: Floats, rate: Floats, count: int) -> tuple[Floats, Floats, Ints, Ints]:
    """Return time, load and messages after each event, link by link, and where the events of each link begin."""
    links, times = np.concatenate([link, link]), np.concatenate([end, start])  # at one time ends come first
    changes = np.concatenate([-rate, rate])
    order = _order(links, times, count)
    first = np.concatenate([[0], np.cumsum(np.bincount(links, minlength=count))])
    load, held = np.cumsum(changes[order]), np.cumsum(np.where(order < len(link), -1, 1))
    before = np.where(first > 0, load[first - 1], 0.0) if len(load) else np.zeros(count + 1)
    load -= np.repeat(before[:-1], np.diff(first))
    return times[order], np.maximum(load, 0.0), held, first


def _order(link: Ints, time: Floats, count: int) -> Ints:
    """Return the order by link, then by time, then as given; short numbers of links are sorted much faster."""
    by_time = np.argsort(time, kind="stable")
    short = link[by_time].astype(np.min_scalar_type(count))
    return np.asarray(by_time[np.argsort(short, kind="stable")])
