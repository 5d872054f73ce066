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

from simcomm.cluster.graph import Link
from simcomm.cluster.routing import Routing, shortest
from simcomm.model.faults import IDLE_CHANGES, BandwidthChange
from simcomm.model.sharing import SAME_ARRIVAL, SAME_WAIT, Capacities, Sharing, fair

Order = tuple[int, ...]


class Route(NamedTuple):
    """What a message crosses between two nodes."""

    nodes: tuple[str, ...]
    links: tuple[Link, ...]
    latency: float  # seconds, of all links together


class Flow:
    """A message on its links: bytes left, bytes per second, and the event that fires when its last byte has arrived.

    ``arrival`` is when it came to its links; of flows that came together the one with the lower order is first.
    """

    __slots__ = ("arrival", "delivered", "left", "links", "rate")

    def __init__(
        self, links: tuple[Link, ...], nbytes: float, delivered: simpy.Event, arrival: tuple[float, Order] = (0.0, ())
    ) -> None:
        self.links = links
        self.left = nbytes
        self.rate = 0.0 if links else inf
        self.delivered = delivered
        self.arrival = arrival

    @property
    def seconds_left(self) -> float:
        """Seconds until the last byte arrives at the present rate; infinite where the flow has none."""
        if self.rate == inf:
            return 0.0
        return self.left / self.rate if self.rate > 0 else inf


class Network:
    """The links of a cluster while flows come and go.

    >>> import simcomm
    >>> env = simpy.Environment()
    >>> network = Network(env, simcomm.star(2, "8 Gbit/s", "1 us").graph, goodput=1.0)
    >>> env.run(env.process(network.transfer("h0", "h1", 1000)))
    ('h0', 's0', 'h1')
    >>> round(env.now * 1e6, 9)  # two latencies, and a thousand bytes at 1 GB/s
    3.0
    """

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
        self.sharing = sharing
        self.full_capacities: Capacities = {(a, b): _capacity(data, goodput) for a, b, data in graph.edges(data=True)}
        self.capacities = dict(self.full_capacities)  # what faults leave of them
        self.carried: dict[Link, float] = dict.fromkeys(self.capacities, 0.0)  # bytes
        self.flows: list[Flow] = []  # in arrival order
        self._latency: dict[Link, float] = {(a, b): data["latency"] for a, b, data in graph.edges(data=True)}
        self._router = routing(graph)
        self._routes: dict[tuple[str, str], Route] = {}
        self._crossing: dict[Link, dict[Flow, None]] = {link: {} for link in self.capacities}
        self._changed: set[Link] = set()  # links whose flows or capacity differ from when rates were shared out
        self._share_out_due = False  # at this very instant
        self._shared_out_at = 0.0  # seconds
        self._instant = 0.0  # seconds: the first of the times that count as this instant
        self._version = 0  # how often rates were shared out

    def transfer(
        self, src: str, dst: str, nbytes: int, order: Order = ()
    ) -> Generator[simpy.Event, Any, tuple[str, ...]]:
        """Carry ``nbytes`` from node src to node dst: first all latencies, then the bytes at the shared rate.

        A simpy process, which returns the nodes of the route. ``order`` says who is first of flows that come together.
        """
        route = self.route(src, dst)
        yield self.env.timeout(route.latency)
        for link in route.links:
            self.carried[link] += nbytes
        if self.env.now > self._instant * (1 + SAME_ARRIVAL):
            self._instant = self.env.now
        flow = Flow(route.links, nbytes, self.env.event(), (self._instant, order))
        self.flows.append(flow)
        for link in route.links:
            self._crossing[link][flow] = None
        self._share_out_soon(route.links)
        yield flow.delivered
        return route.nodes

    def route(self, src: str, dst: str) -> Route:
        """Return the route from node src to node dst, always the same. Raise InputError where no link leads there."""
        if (src, dst) not in self._routes:
            nodes = self._router.route(src, dst)
            links = tuple(pairwise(nodes))
            self._routes[src, dst] = Route(nodes, links, sum(map(self._latency.__getitem__, links)))
        return self._routes[src, dst]

    def change(self, changes: Iterator[BandwidthChange]) -> Generator[simpy.Event, Any, None]:
        """Set the capacities of links as ``changes`` say, until nothing else is going to happen. A simpy process."""
        idle = 0
        for change in changes:
            if change.time > self.env.now:
                yield self.env.timeout(change.time - self.env.now)
                idle = idle + 1 if self.env.peek() == inf else 0
            if idle > IDLE_CHANGES:
                return
            alone, shared = self.full_capacities[change.link]  # either may be infinite
            left = (alone * change.share, shared * change.share) if change.share > 0 else (0.0, 0.0)
            self.capacities[change.link] = left
            self._share_out_soon([change.link])

    def _share_out_soon(self, changed: Iterable[Link]) -> None:
        """Share out anew at this instant, once for all that happens in it."""
        self._changed.update(changed)
        if not self._share_out_due:
            self._share_out_due = True
            self.env.process(self._share_out())

    def _share_out(self) -> Generator[simpy.Event, Any, None]:
        """Give all flows their rates, and wait for the first to end unless rates change before."""
        yield self.env.timeout(0)
        self._share_out_due = False
        self._advance()
        self.sharing(self._affected_flows(), self.capacities)
        self._changed.clear()
        self._version += 1
        version, wait = self._version, min((flow.seconds_left for flow in self.flows), default=inf)
        if wait == inf:
            return
        yield self.env.timeout(wait)
        if version == self._version:
            self._end([flow for flow in self.flows if flow.seconds_left <= wait * (1 + SAME_WAIT)])

    def _affected_flows(self) -> list[Flow]:
        """Return the flows that share a link with a change, or with such a flow, and so on, in arrival order.

        All other flows keep their rates, to the last bit.
        """
        links, found = set(self._changed), set()
        reached = list(links)
        for link in reached:
            for flow in self._crossing[link]:
                if flow not in found:
                    found.add(flow)
                    further = [other for other in flow.links if other not in links]
                    links.update(further)
                    reached += further
        return [flow for flow in self.flows if flow in found]

    def _end(self, done: list[Flow]) -> None:
        """Take flows off their links, and tell those who wait for them."""
        self._advance()
        for flow in done:
            self.flows.remove(flow)
            for link in flow.links:
                del self._crossing[link][flow]
            flow.delivered.succeed()
        self._share_out_soon(link for flow in done for link in flow.links)

    def _advance(self) -> None:
        """Take off what was carried since rates were last shared out, but never more than is left."""
        passed = self.env.now - self._shared_out_at
        for flow in self.flows:
            flow.left = max(0.0, flow.left - flow.rate * passed) if passed > 0 else flow.left
        self._shared_out_at = self.env.now

    def _check(self) -> None:
        """Raise AssertionError unless no link is over its capacity and every flow is as fast as fairness allows."""
        loads: dict[Link, float] = {}
        fastest: dict[Link, float] = {}
        numbers: dict[Link, int] = {}
        for flow in self.flows:
            for link in flow.links:
                loads[link] = loads.get(link, 0.0) + flow.rate
                fastest[link] = max(fastest.get(link, 0.0), flow.rate)
                numbers[link] = numbers.get(link, 0) + 1
        full = {link for link, load in loads.items() if load >= self._limit(link, numbers[link]) * (1 - 1e-9)}
        for link, load in loads.items():
            assert load <= self._limit(link, numbers[link]) * (1 + 1e-9), f"{link} carries {load} bytes/s"
        for flow in self.flows:
            is_limited = any(link in full and flow.rate >= fastest[link] * (1 - 1e-9) for link in flow.links)
            assert is_limited or flow.rate == inf, f"a flow over {flow.links} could be faster"

    def _limit(self, link: Link, number: int) -> float:
        """Return the bytes/s that a link offers to so many flows together."""
        return self.capacities[link][number > 1]


def _capacity(data: dict[str, float], goodput: float) -> tuple[float, float]:
    """Return the payload's bytes/s of a link for one flow alone, and for several."""
    alone = data["bandwidth"] * goodput
    return alone, data.get("shared_bandwidth", data["bandwidth"]) * goodput
