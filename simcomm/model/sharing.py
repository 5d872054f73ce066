"""Share each link's bandwidth max-min fairly among the messages that cross it.

Floating-point rounding makes equal times differ slightly, and the difference grows with the number of additions. The
tolerances below are relative: times that differ by less count as equal.
"""

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from math import inf
from typing import Protocol

from simcomm.cluster.graph import Link

SAME_ARRIVAL = 1e-12  # relative to the time of an arrival or a fault
SAME_WAIT = 1e-12  # relative to the wait for the next completion (reference engine)
SAME_EVENT = 1e-13  # relative to the time (compiled engine); tighter, because the time exceeds the wait
SAME_STEP = 4e-16  # relative to the time, between ranks in a max-plus step; 100,000 steps add up to less than 1e-10


UNFIXED = -1.0  # placeholder for a rate that is not yet fixed
Capacities = dict[Link, tuple[float, float]]  # bytes/s per link, for a single flow and for several


class SharedFlow(Protocol):
    """A message in flight: the links that it crosses and its rate in bytes/s."""

    links: tuple[Link, ...]
    rate: float


class _FillingLink:
    __slots__ = ("flows", "index", "remaining", "unfixed")

    def __init__(self, index: int) -> None:
        self.index = index  # in the order in which flows reach the links
        self.flows: list[SharedFlow] = []
        self.unfixed = 0  # number of flows whose rate is not yet fixed
        self.remaining = 0.0  # bytes/s left for flows whose rate is not yet fixed

    @property
    def share(self) -> float:
        """The bandwidth in bytes/s for each flow on the link whose rate is not yet fixed."""
        return self.remaining / self.unfixed


def fair(flows: Iterable[SharedFlow], capacities: Capacities) -> None:
    """Set the rate of every flow to its max-min fair share, by progressive filling.

    The result is bit-identical for the same flows in the same order, because equally tight links are processed in the
    order in which the flows first cross them.
    """
    links = _unfilled_links(flows, capacities)
    heap = [(link.remaining / link.unfixed, link.index, link) for link in links.values()]
    heapify(heap)
    while heap:
        share, _, tightest = heappop(heap)
        if not tightest.unfixed or share != tightest.share:
            continue  # stale heap entry: all rates are fixed, or the share has changed since
        for link in _freeze(tightest, links):
            if link.unfixed:
                heappush(heap, (link.remaining / link.unfixed, link.index, link))


def _unfilled_links(flows: Iterable[SharedFlow], capacities: Capacities) -> dict[Link, _FillingLink]:
    links: dict[Link, _FillingLink] = {}
    for flow in flows:
        flow.rate = UNFIXED if flow.links else inf
        for name in flow.links:
            link = links.get(name)
            if link is None:
                link = links[name] = _FillingLink(len(links))
            link.flows.append(flow)
    for name, link in links.items():
        link.unfixed = len(link.flows)
        link.remaining = capacities[name][link.unfixed > 1]
    return links


def _freeze(tightest: _FillingLink, links: dict[Link, _FillingLink]) -> set[_FillingLink]:
    """Fix the rates of the remaining flows on the tightest link. Return the other links that these flows cross."""
    share, touched = tightest.share, set()
    for flow in tightest.flows:
        if flow.rate == UNFIXED:
            flow.rate = share
            for name in flow.links:
                link = links[name]
                link.unfixed -= 1
                if link.unfixed:
                    touched.add(link)
                    if share < inf:
                        link.remaining = link.remaining - share if link.remaining > share else 0.0
    return touched
