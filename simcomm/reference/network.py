"""Messages in flight: they share the links of their routes in virtual time, max-min fairly or one after the other.

Progressive filling (Bertsekas and Gallager, "Data Networks", 2nd edition, section 6.5.2): raise all rates together,
freeze those on a link that is full, go on with the rest. Every flow has equal weight.
"""

from collections.abc import Generator, Iterable, Iterator
from itertools import pairwise
from math import inf
from typing import Any, NamedTuple

import networkx as nx
import simpy

from simcomm.cluster.graph import Edge
from simcomm.cluster.routing import Routing, shortest
from simcomm.model.sharing import ONE_INSTANT, Capacities, Sharing, fair
from simcomm.model.trouble import IDLE_CHANGES, Change

Order = tuple[int, ...]
SAME_INSTANT = 1e-12  # flows whose last bytes arrive within this share of the wait are through together


class Way(NamedTuple):
    """What a message meets between two nodes."""

    nodes: tuple[str, ...]
    edges: tuple[Edge, ...]
    latency: float  # seconds, of all edges together


class Flow:
    """A message on its links: bytes left, bytes per second, and the event that fires when it is through.

    It ``came`` at a time; of flows that did so together the one with the lower order is first.
    """

    __slots__ = ("came", "edges", "left", "rate", "through")

    def __init__(
        self, edges: tuple[Edge, ...], nbytes: float, through: simpy.Event, came: tuple[float, Order] = (0.0, ())
    ) -> None:
        self.edges = edges
        self.left = nbytes
        self.rate = 0.0 if edges else inf
        self.through = through
        self.came = came

    @property
    def seconds_left(self) -> float:
        if self.rate == inf:
            return 0.0
        return self.left / self.rate if self.rate > 0 else inf  # it came at this very instant, or its way is shut


class Network:
    """The links of a cluster while flows come and go."""

    def __init__(
        self,
        env: simpy.Environment,
        graph: "nx.DiGraph[str]",
        goodput: float,
        routing: Routing = shortest,
        sharing: Sharing = fair,
    ) -> None:
        self.env = env
        self.graph = graph
        self.whole: Capacities = {(a, b): _capacity(data, goodput) for a, b, data in graph.edges(data=True)}
        self._latency: dict[Edge, float] = {(a, b): data["latency"] for a, b, data in graph.edges(data=True)}
        self.capacities = dict(self.whole)
        self.carried: dict[Edge, float] = dict.fromkeys(self.capacities, 0.0)
        self.flows: list[Flow] = []
        self._crossing: dict[Edge, dict[Flow, None]] = {edge: {} for edge in self.whole}
        self._changed: set[Edge] = set()  # edges whose flows or capacity are others than when rates were shared out
        self._router = routing(graph)
        self._ways: dict[tuple[str, str], Way] = {}
        self.share_out = sharing
        self._instant = 0.0
        self._settled_at = 0.0
        self._settling = False
        self._version = 0

    def transfer(
        self, src: str, dst: str, nbytes: int, order: Order = ()
    ) -> Generator[simpy.Event, Any, tuple[str, ...]]:
        """A process that ends when ``nbytes`` have gone from node src to node dst: latencies first, then sharing.

        Returns the nodes on the way.
        """
        way = self.way(src, dst)
        yield self.env.timeout(way.latency)
        for edge in way.edges:
            self.carried[edge] += nbytes
        if self.env.now > self._instant * (1 + ONE_INSTANT):
            self._instant = self.env.now
        flow = Flow(way.edges, nbytes, self.env.event(), (self._instant, order))
        self.flows.append(flow)
        for edge in way.edges:
            self._crossing[edge][flow] = None
        self._settle_soon(way.edges)
        yield flow.through
        return way.nodes

    def way(self, src: str, dst: str) -> Way:
        """The way from node src to node dst, always the same. Raises InputError where no link leads there."""
        if (src, dst) not in self._ways:
            nodes = self._router.route(src, dst)
            edges = tuple(pairwise(nodes))
            self._ways[src, dst] = Way(nodes, edges, sum(map(self._latency.__getitem__, edges)))
        return self._ways[src, dst]

    def change(self, changes: Iterator[Change]) -> Generator[simpy.Event, Any, None]:
        """A process that gives edges the bandwidth that is left of them, until nothing else will ever happen."""
        idle = 0
        for change in changes:
            if change.time > self.env.now:
                yield self.env.timeout(change.time - self.env.now)
                idle = idle + 1 if self.env.peek() == inf else 0
            if idle > IDLE_CHANGES:
                return
            alone, shared = self.whole[change.edge]  # either may be infinite
            left = (alone * change.share, shared * change.share) if change.share > 0 else (0.0, 0.0)
            self.capacities[change.edge] = left
            self._settle_soon([change.edge])

    def _settle_soon(self, changed: Iterable[Edge]) -> None:
        """Share out anew at this instant, once for all that happens in it."""
        self._changed.update(changed)
        if not self._settling:
            self._settling = True
            self.env.process(self._settle())

    def _settle(self) -> Generator[simpy.Event, Any, None]:
        """Give all flows their rates, and wait for the first to be through unless they change before."""
        yield self.env.timeout(0)
        self._settling = False
        self._advance()
        self.share_out(self._disturbed(), self.capacities)
        self._changed.clear()
        self._version += 1
        version, wait = self._version, min((flow.seconds_left for flow in self.flows), default=inf)
        if wait == inf:
            return
        yield self.env.timeout(wait)
        if version == self._version:
            self._end([flow for flow in self.flows if flow.seconds_left <= wait * (1 + SAME_INSTANT)])

    def _disturbed(self) -> list[Flow]:
        """The flows that share an edge with a change, or with such a flow, and so on, as they came.

        No other flow's rate can be another than it was, to the last bit.
        """
        edges, found = set(self._changed), set()
        reached = list(edges)
        for edge in reached:
            for flow in self._crossing[edge]:
                if flow not in found:
                    found.add(flow)
                    further = [other for other in flow.edges if other not in edges]
                    edges.update(further)
                    reached += further
        return [flow for flow in self.flows if flow in found]

    def _end(self, done: list[Flow]) -> None:
        self._advance()
        for flow in done:
            self.flows.remove(flow)
            for edge in flow.edges:
                del self._crossing[edge][flow]
            flow.through.succeed()
        self._settle_soon(edge for flow in done for edge in flow.edges)

    def _advance(self) -> None:
        """Take off what has gone through since the rates were last shared out; rounding takes no more than all."""
        passed = self.env.now - self._settled_at
        for flow in self.flows:
            flow.left = max(0.0, flow.left - flow.rate * passed) if passed > 0 else flow.left
        self._settled_at = self.env.now

    def _check(self) -> None:
        """Raise AssertionError unless no edge is over its capacity and every flow is as fast as fairness allows."""
        loads: dict[Edge, float] = {}
        fastest: dict[Edge, float] = {}
        numbers: dict[Edge, int] = {}
        for flow in self.flows:
            for edge in flow.edges:
                loads[edge] = loads.get(edge, 0.0) + flow.rate
                fastest[edge] = max(fastest.get(edge, 0.0), flow.rate)
                numbers[edge] = numbers.get(edge, 0) + 1
        full = {edge for edge, load in loads.items() if load >= self._limit(edge, numbers[edge]) * (1 - 1e-9)}
        for edge, load in loads.items():
            assert load <= self._limit(edge, numbers[edge]) * (1 + 1e-9), f"{edge} carries {load} bytes/s"
        for flow in self.flows:
            held_back = any(edge in full and flow.rate >= fastest[edge] * (1 - 1e-9) for edge in flow.edges)
            assert held_back or flow.rate == inf, f"a flow over {flow.edges} could be faster"

    def _limit(self, edge: Edge, number: int) -> float:
        return self.capacities[edge][number > 1]


def _capacity(data: dict[str, float], goodput: float) -> tuple[float, float]:
    alone = data["bandwidth"] * goodput
    return alone, data.get("shared_bandwidth", data["bandwidth"]) * goodput
