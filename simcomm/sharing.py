"""How links are shared out between the messages on them."""

from collections.abc import Callable, Iterable
from math import inf
from typing import Protocol

Edge = tuple[str, str]
ONE_INSTANT = 1e-12  # flows that come within this share of the time, which may be rounding, have come together
Capacities = dict[Edge, tuple[float, float]]  # bytes/s of an edge for one flow alone, and for several


class Flow(Protocol):
    """What sharing reads of a flow, its edges and when it came, and the bytes per second that it sets."""

    edges: tuple[Edge, ...]
    came: tuple[float, tuple[int, ...]]
    rate: float


Sharing = Callable[[Iterable[Flow], Capacities], None]


def fair(flows: Iterable[Flow], capacities: Capacities) -> None:
    """Give every flow its max-min fair rate.

    The rates are the same to the last bit for the same flows in the same order: no sets of flows, whose order varies.
    """
    crossing: dict[Edge, dict[Flow, None]] = {}
    free = dict.fromkeys(flows)
    for flow in free:
        flow.rate = inf
        for edge in flow.edges:
            crossing.setdefault(edge, {})[flow] = None
    left = {edge: capacities[edge][len(on_it) > 1] for edge, on_it in crossing.items()}
    while free and crossing:
        tightest = min(crossing, key=lambda edge: left[edge] / len(crossing[edge]))
        share = left[tightest] / len(crossing[tightest])
        for flow in list(crossing[tightest]):
            flow.rate = share
            free.pop(flow)
            for edge in flow.edges:
                left[edge] = max(0.0, left[edge] - share) if share < inf else left[edge]
                crossing[edge].pop(flow)
        crossing = {edge: on_it for edge, on_it in crossing.items() if on_it}


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
