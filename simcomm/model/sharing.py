"""How the messages on links share them: max-min fairly, or one after the other in arrival order."""

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from math import inf
from typing import Protocol

from simcomm.cluster.graph import Edge

ONE_INSTANT = 1e-12  # flows that arrive within this share of the time, which may be rounding, arrive together
RISING = -1.0  # in place of a rate
Capacities = dict[Edge, tuple[float, float]]  # bytes/s of an edge for one flow alone, and for several


class Flow(Protocol):
    """A message on its links: the edges that it crosses, when it arrived there, and its rate in bytes/s."""

    edges: tuple[Edge, ...]
    arrival: tuple[float, tuple[int, ...]]  # seconds; of flows that arrive together the lower order is first
    rate: float


Sharing = Callable[[Iterable[Flow], Capacities], None]


class _FillingEdge:
    """An edge while the rates of its flows are raised."""

    __slots__ = ("flows", "left", "number", "rising")

    def __init__(self, number: int) -> None:
        self.number = number  # of edges that a flow met before
        self.flows: list[Flow] = []
        self.rising = 0  # how many of the flows may still become faster
        self.left = 0.0  # bytes/s that those share

    @property
    def share(self) -> float:
        """Bytes/s that each flow gets that may still become faster."""
        return self.left / self.rising


def fair(flows: Iterable[Flow], capacities: Capacities) -> None:
    """Set the rate of every flow to its max-min fair share, by progressive filling.

    The rates are the same to the last bit for the same flows in the same order: the search for the tightest edge uses
    no sets, whose order varies, and of equally tight edges the one that a flow met first counts.
    """
    edges = _empty_edges(flows, capacities)
    heap = [(edge.left / edge.rising, edge.number, edge) for edge in edges.values()]
    heapify(heap)
    while heap:
        share, _, tightest = heappop(heap)
        if not tightest.rising or share != tightest.share:
            continue  # all flows there have their rates, or the share has changed and is in the heap once more
        for edge in _freeze(tightest, edges):
            if edge.rising:
                heappush(heap, (edge.left / edge.rising, edge.number, edge))


def _empty_edges(flows: Iterable[Flow], capacities: Capacities) -> dict[Edge, _FillingEdge]:
    """Return the edges that flows cross, each with its whole capacity left; mark the rates of the flows as rising."""
    edges: dict[Edge, _FillingEdge] = {}
    for flow in flows:
        flow.rate = RISING if flow.edges else inf
        for name in flow.edges:
            edge = edges.get(name)
            if edge is None:
                edge = edges[name] = _FillingEdge(len(edges))
            edge.flows.append(flow)
    for name, edge in edges.items():
        edge.rising = len(edge.flows)
        edge.left = capacities[name][edge.rising > 1]
    return edges


def _freeze(tightest: _FillingEdge, edges: dict[Edge, _FillingEdge]) -> set[_FillingEdge]:
    """Set the rate of the flows that still rise on an edge to its share. Return the edges that have less left now."""
    share, touched = tightest.share, set()
    for flow in tightest.flows:
        if flow.rate == RISING:
            flow.rate = share
            for name in flow.edges:
                edge = edges[name]
                edge.rising -= 1
                if edge.rising:
                    touched.add(edge)
                    if share < inf:
                        edge.left = edge.left - share if edge.left > share else 0.0
    return touched


def fifo(flows: Iterable[Flow], capacities: Capacities) -> None:
    """Give each link to one flow at a time, in arrival order: a flow waits until its whole route is free.

    The flow that arrived first is first on all its links, so flows never wait for each other in a circle. It is as
    fast as its slowest link.
    """
    taken: set[Edge] = set()
    for flow in sorted(flows, key=lambda flow: flow.arrival):
        is_free = taken.isdisjoint(flow.edges)
        flow.rate = min((capacities[edge][0] for edge in flow.edges), default=inf) if is_free else 0.0
        taken.update(flow.edges)


SHARING_RULES: dict[str, Sharing] = {"fair": fair, "fifo": fifo}  # by the word that a cluster says
