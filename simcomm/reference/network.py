"""Simulate messages in flight, which share the links of their routes max-min fairly.

Progressive filling (Bertsekas and Gallager, "Data Networks", 2nd edition, section 6.5.2): raise all rates together,
freeze the rates on a link that is full, and continue with the remaining rates. Every flow has equal weight.
"""

from collections.abc import Generator, Iterable
from itertools import pairwise
from math import inf
from typing import Any, NamedTuple

import networkx as nx
import simpy

from simcomm.cluster.graph import Link
from simcomm.cluster.routing import Routing, shortest
from simcomm.model.faults import BandwidthChange
from simcomm.model.sharing import SAME_WAIT, Capacities, fair


class Route(NamedTuple):
    """A path through the network: its nodes, its links and its latency in seconds."""

    nodes: tuple[str, ...]
    links: tuple[Link, ...]
    latency: float  # sum over all links, in seconds


class Flow:
    """A message on its links: remaining bytes, rate in bytes/s, and an event that fires when its last byte arrives."""

    __slots__ = ("delivered", "left", "links", "rate")

    def __init__(self, links: tuple[Link, ...], nbytes: float, delivered: simpy.Event) -> None:
        self.links = links
        self.left = nbytes
        self.rate = 0.0 if links else inf
        self.delivered = delivered

    @property
    def seconds_left(self) -> float:
        """The seconds until the last byte arrives at the current rate, or infinity if the rate is 0."""
        if self.rate == inf:
            return 0.0
        return self.left / self.rate if self.rate > 0 else inf


class Network:
    """The links of a simulated cluster, and the flows that share them.

    >>> import simcomm
    >>> env = simpy.Environment()
    >>> network = Network(env, simcomm.star(2, "8 Gbit/s", "1 us").graph, goodput=1.0)
    >>> env.run(env.process(network.transfer("h0", "h1", 1000)))
    ('h0', 's0', 'h1')
    >>> round(env.now * 1e6, 9)  # two latencies, and a thousand bytes at 1 GB/s
    3.0
    """

    def __init__(
        self, env: simpy.Environment, graph: "nx.DiGraph[str]", goodput: float, routing: Routing = shortest
    ) -> None:
        self.env = env
        self.graph = graph
        self.full_capacities: Capacities = {
            (a, b): (data["bandwidth"] * goodput, data.get("shared_bandwidth", data["bandwidth"]) * goodput)
            for a, b, data in graph.edges(data=True)
        }
        self.capacities = dict(self.full_capacities)  # under faults
        self.carried: dict[Link, float] = dict.fromkeys(self.capacities, 0.0)  # bytes
        self.flows: list[Flow] = []  # in arrival order
        self._latency: dict[Link, float] = {(a, b): data["latency"] for a, b, data in graph.edges(data=True)}
        self._router = routing(graph)
        self._routes: dict[tuple[str, str], Route] = {}
        self._crossing: dict[Link, dict[Flow, None]] = {link: {} for link in self.capacities}
        self._changed: set[Link] = set()  # links whose flows or capacity have changed since rates were set
        self._share_out_due = False  # at this instant
        self._shared_out_at = 0.0  # seconds
        self._version = 0  # number of times that rates were set

    def transfer(self, src: str, dst: str, nbytes: int) -> Generator[simpy.Event, Any, tuple[str, ...]]:
        """Transfer ``nbytes`` from node src to node dst: wait for the route's latency, then send at the shared rate.

        This simpy process returns the nodes of the route.
        """
        route = self.route(src, dst)
        yield self.env.timeout(route.latency)
        for link in route.links:
            self.carried[link] += nbytes
        flow = Flow(route.links, nbytes, self.env.event())
        self.flows.append(flow)
        for link in route.links:
            self._crossing[link][flow] = None
        self._share_out_soon(route.links)
        yield flow.delivered
        return route.nodes

    def route(self, src: str, dst: str) -> Route:
        """Return the route from node src to node dst. Raise InputError if there is none."""
        if (src, dst) not in self._routes:
            nodes = self._router.route(src, dst)
            links = tuple(pairwise(nodes))
            self._routes[src, dst] = Route(nodes, links, sum(map(self._latency.__getitem__, links)))
        return self._routes[src, dst]

    def change(self, changes: Iterable[BandwidthChange]) -> Generator[simpy.Event, Any, None]:
        """Apply bandwidth ``changes`` at their times, as a simpy process."""
        for change in changes:
            if change.time > self.env.now:
                yield self.env.timeout(change.time - self.env.now)
            alone, shared = self.full_capacities[change.link]  # either may be infinite
            remaining = (alone * change.share, shared * change.share) if change.share > 0 else (0.0, 0.0)
            self.capacities[change.link] = remaining
            self._share_out_soon([change.link])

    def _share_out_soon(self, changed: Iterable[Link]) -> None:
        """Schedule one update of the rates, after all other events at this time."""
        self._changed.update(changed)
        if not self._share_out_due:
            self._share_out_due = True
            self.env.process(self._share_out())

    def _share_out(self) -> Generator[simpy.Event, Any, None]:
        """Set the rates of the affected flows. Then wait until the first flow ends, unless rates change earlier."""
        yield self.env.timeout(0)
        self._share_out_due = False
        self._advance()
        fair(self._affected_flows(), self.capacities)
        self._changed.clear()
        self._version += 1
        version, wait = self._version, min((flow.seconds_left for flow in self.flows), default=inf)
        if wait == inf:
            return
        yield self.env.timeout(wait)
        if version == self._version:
            self._end([flow for flow in self.flows if flow.seconds_left <= wait * (1 + SAME_WAIT)])

    def _affected_flows(self) -> list[Flow]:
        """Return the flows on changed links, and all flows that share links with them directly or through others."""
        links, affected = set(self._changed), set()
        reached = list(links)
        for link in reached:
            for flow in self._crossing[link]:
                if flow not in affected:
                    affected.add(flow)
                    further = [other for other in flow.links if other not in links]
                    links.update(further)
                    reached += further
        return [flow for flow in self.flows if flow in affected]

    def _end(self, done: list[Flow]) -> None:
        self._advance()
        for flow in done:
            self.flows.remove(flow)
            for link in flow.links:
                del self._crossing[link][flow]
            flow.delivered.succeed()
        self._share_out_soon(link for flow in done for link in flow.links)

    def _advance(self) -> None:
        passed = self.env.now - self._shared_out_at
        for flow in self.flows:
            flow.left = max(0.0, flow.left - flow.rate * passed) if passed > 0 else flow.left
        self._shared_out_at = self.env.now
