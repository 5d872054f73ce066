"""How the messages on links share them: max-min fairly, or one after the other in arrival order.

Times that should be equal differ by rounding, which grows with the number of additions that led to them: how close two
of them are that count as one is a share of a time.
"""

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from math import inf
from typing import Protocol

from simcomm.cluster.graph import Link

SAME_ARRIVAL = 1e-12  # of the time; flows that arrive together are queued in their order, the same in both engines
SAME_WAIT = 1e-12  # of the wait for the next flow to end, in the reference engine; flows that end together
SAME_EVENT = 1e-13  # of the time, in the kernel; less than of a wait, as the time since the beginning is longer
SAME_STEP = 4e-16  # of the time, in max-plus, by which ranks may differ in a step; 100,000 repeats add less than 1e-10


RISING = -1.0  # in place of a rate
Capacities = dict[Link, tuple[float, float]]  # bytes/s of a link for one flow alone, and for several


class SharedFlow(Protocol):
    """A message in flight: the links that it crosses, when it arrived there, and its rate in bytes/s."""

    links: tuple[Link, ...]
    arrival: tuple[float, tuple[int, ...]]  # seconds; of flows that arrive together the lower order is first
    rate: float


Sharing = Callable[[Iterable[SharedFlow], Capacities], None]


class _FillingLink:
    """A link while the rates of its flows are raised."""

    __slots__ = ("flows", "left", "number", "rising")

    def __init__(self, number: int) -> None:
        self.number = number  # of links that a flow met before
        self.flows: list[SharedFlow] = []
        self.rising = 0  # how many of the flows may still become faster
        self.left = 0.0  # bytes/s that those share

    @property
    def share(self) -> float:
        """Bytes/s that each flow gets that may still become faster."""
        return self.left / self.rising


def fair(flows: Iterable[SharedFlow], capacities: Capacities) -> None:
    """Set the rate of every flow to its max-min fair share, by progressive filling.

    The rates are the same to the last bit for the same flows in the same order: the search for the tightest link uses
    no sets, whose order varies, and of equally tight links the one that a flow met first counts.
    """
    links = _empty_links(flows, capacities)
    heap = [(link.left / link.rising, link.number, link) for link in links.values()]
    heapify(heap)
    while heap:
        share, _, tightest = heappop(heap)
        if not tightest.rising or share != tightest.share:
            continue  # all flows there have their rates, or the share has changed and is in the heap once more
        for link in _freeze(tightest, links):
            if link.rising:
                heappush(heap, (link.left / link.rising, link.number, link))


def _empty_links(flows: Iterable[SharedFlow], capacities: Capacities) -> dict[Link, _FillingLink]:
    """Return the links that flows cross, each with its whole capacity left; mark the rates of the flows as rising."""
    links: dict[Link, _FillingLink] = {}
    for flow in flows:
        flow.rate = RISING if flow.links else inf
        for name in flow.links:
            link = links.get(name)
            if link is None:
                link = links[name] = _FillingLink(len(links))
            link.flows.append(flow)
    for name, link in links.items():
        link.rising = len(link.flows)
        link.left = capacities[name][link.rising > 1]
    return links


def _freeze(tightest: _FillingLink, links: dict[Link, _FillingLink]) -> set[_FillingLink]:
    """Set the rate of the flows that still rise on a link to its share. Return the links that have less left now."""
    share, touched = tightest.share, set()
    for flow in tightest.flows:
        if flow.rate == RISING:
            flow.rate = share
            for name in flow.links:
                link = links[name]
                link.rising -= 1
                if link.rising:
                    touched.add(link)
                    if share < inf:
                        link.left = link.left - share if link.left > share else 0.0
    return touched


def fifo(flows: Iterable[SharedFlow], capacities: Capacities) -> None:
    """Give each link to one flow at a time, in arrival order: a flow waits until its whole route is free.

    The flow that arrived first is first on all its links, so flows never wait for each other in a circle. It is as
    fast as its slowest link.
    """
    taken: set[Link] = set()
    for flow in sorted(flows, key=lambda flow: flow.arrival):
        is_free = taken.isdisjoint(flow.links)
        flow.rate = min((capacities[link][0] for link in flow.links), default=inf) if is_free else 0.0
        taken.update(flow.links)


SHARING_RULES: dict[str, Sharing] = {"fair": fair, "fifo": fifo}  # by the word that a cluster says
