"""How links are shared out between the messages on them."""

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from math import inf
from typing import Protocol

from simcomm.cluster.graph import Edge

ONE_INSTANT = 1e-12  # flows that come within this share of the time, which may be rounding, have come together
RISING = -1.0  # in place of a rate
Capacities = dict[Edge, tuple[float, float]]  # bytes/s of an edge for one flow alone, and for several


class Flow(Protocol):
    """What sharing reads of a flow, its edges and when it came, and the bytes per second that it sets."""

    edges: tuple[Edge, ...]
    came: tuple[float, tuple[int, ...]]
    rate: float


Sharing = Callable[[Iterable[Flow], Capacities], None]


class Filling:
    """An edge while rates are raised."""

    __slots__ = ("flows", "left", "number", "rising")

    def __init__(self, number: int) -> None:
        self.number = number  # of edges that a flow came to before
        self.flows: list[Flow] = []
        self.rising = 0  # how many of them may still become faster
        self.left = 0.0  # bytes/s that those share

    @property
    def share(self) -> float:
        return self.left / self.rising


def fair(flows: Iterable[Flow], capacities: Capacities) -> None:
    """Give every flow its max-min fair rate.

    The rates are the same to the last bit for the same flows in the same order: no sets of flows, whose order varies,
    and of edges that are equally tight the one that a flow came to first.
    """
    fillings = _fillings(flows, capacities)
    heap = [(filling.left / filling.rising, filling.number, filling) for filling in fillings.values()]
    heapify(heap)
    while heap:
        share, _, tightest = heappop(heap)
        if not tightest.rising or share != tightest.share:
            continue  # all flows there have their rates, or its share has changed and stands in the heap once more
        for filling in _freeze(tightest, fillings):
            if filling.rising:
                heappush(heap, (filling.left / filling.rising, filling.number, filling))


def _fillings(flows: Iterable[Flow], capacities: Capacities) -> dict[Edge, Filling]:
    """The edges that flows cross, each with all that it has; rates are below zero until the flow has its own."""
    fillings: dict[Edge, Filling] = {}
    for flow in flows:
        flow.rate = RISING if flow.edges else inf
        for edge in flow.edges:
            filling = fillings.get(edge)
            if filling is None:
                filling = fillings[edge] = Filling(len(fillings))
            filling.flows.append(flow)
    for edge, filling in fillings.items():
        filling.rising = len(filling.flows)
        filling.left = capacities[edge][filling.rising > 1]
    return fillings


def _freeze(tightest: Filling, fillings: dict[Edge, Filling]) -> set[Filling]:
    """The flows that still rise on an edge get its share and take it from all their edges, which are returned."""
    share, touched = tightest.share, set()
    for flow in tightest.flows:
        if flow.rate == RISING:
            flow.rate = share
            for edge in flow.edges:
                filling = fillings[edge]
                filling.rising -= 1
                if filling.rising:
                    touched.add(filling)
                    if share < inf:
                        filling.left = filling.left - share if filling.left > share else 0.0
    return touched


def fifo(flows: Iterable[Flow], capacities: Capacities) -> None:
    """Give each link to one flow at a time, as they came: a flow waits until its whole route is free for it.

    Whoever came first is first on all its links, so that flows never wait for each other in a circle. It then goes as
    fast as its slowest link.
    """
    taken: set[Edge] = set()
    for flow in sorted(flows, key=lambda flow: flow.came):
        is_free = taken.isdisjoint(flow.edges)
        flow.rate = min((capacities[edge][0] for edge in flow.edges), default=inf) if is_free else 0.0
        taken.update(flow.edges)


SHARING_RULES: dict[str, Sharing] = {"fair": fair, "fifo": fifo}  # by what a cluster says
