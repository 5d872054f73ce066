"""Where hosts and switches stand, in pixels with y upwards, and the lines on which messages travel.

Hosts stand on an ellipse, clockwise by rank and beside those on the same switch; switches stand on smaller ellipses,
the further from a host the nearer to the middle. Everything follows from names and links: no chance, no iteration.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from math import atan2, cos, hypot, pi, sin
from typing import TypeAlias

import networkx as nx
import numpy as np
import numpy.typing as npt

from collectives.trace import Trace

Graph: TypeAlias = "nx.DiGraph[str]"
Point = tuple[float, float]
Edge = tuple[str, str]
Line = npt.NDArray[np.float64]  # [points, 2]

LARGEST_HOST = 22.0


@dataclass(frozen=True)
class Box:
    """An area of the picture."""

    left: float
    bottom: float
    right: float
    top: float

    @property
    def middle(self) -> Point:
        return self.at(0.5, 0.5)

    def at(self, x: float, y: float) -> Point:
        """The point at shares ``x`` and ``y`` of width and height."""
        return self.left + x * (self.right - self.left), self.bottom + y * (self.top - self.bottom)


@dataclass(frozen=True)
class Layout:
    """Places of nodes, how large each is drawn, and the lane of each direction of a link."""

    places: dict[str, Point]
    hosts: tuple[str, ...]  # node of each rank
    radii: dict[str, float]  # of each node's symbol
    lanes: dict[Edge, Line]
    memory: Box | None = None  # the box that stands for the two ends of this machine's memory

    @property
    def radius(self) -> float:
        """Of a host."""
        return self.radii[self.hosts[0]]

    def path(self, src: int, dst: int, route: tuple[str, ...]) -> Line:
        """The line from rank ``src`` to ``dst`` along ``route``; straight where that is empty."""
        if self.memory and len(route) == 4:
            return self._memory_path(self.memory, *route)
        nodes = route if len(route) > 1 else (self.hosts[src], self.hosts[dst])
        return np.concatenate([self._link(a, b) for a, b in pairwise(nodes)])

    def _link(self, a: str, b: str) -> Line:
        return self.lanes[a, b] if (a, b) in self.lanes else _lane(self.places, a, b, self.radii)

    def _memory_path(self, memory: Box, src: str, into: str, out: str, dst: str) -> Line:
        down, up, middle = self.lanes[src, into], self.lanes[out, dst], memory.middle[1]
        return np.array([down[0], (down[1][0], middle), (up[0][0], middle), up[1]])


def natural(name: str) -> list[tuple[int, str]]:
    """Sort key with h2 before h10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def topology(trace: Trace) -> Graph:
    """Every node and every directed edge that the trace knows of, from its links and from its messages' routes."""
    graph: Graph = nx.DiGraph()
    graph.add_nodes_from(hosts_of(trace))
    graph.add_edges_from((link.src, link.dst) for link in trace.links)
    for route in {message.route for message in trace.messages}:
        graph.add_edges_from(pairwise(route))
    graph.add_nodes_from(trace.nodes if graph.edges else ())
    return graph


def hosts_of(trace: Trace) -> tuple[str, ...]:
    """The node of each rank; made up where the trace does not say."""
    return (
        tuple(trace.hosts) if len(trace.hosts) == trace.world_size else tuple(f"h{r}" for r in range(trace.world_size))
    )


def is_through_memory(trace: Trace) -> bool:
    """Whether the trace's ranks are joined by the memory of one machine."""
    return _memory_ends(topology(trace), hosts_of(trace)) is not None


def lay_out(trace: Trace, box: Box) -> Layout:
    """Places and lanes of a trace's cluster, the middles of its hosts inside ``box``."""
    graph, hosts = topology(trace), hosts_of(trace)
    outer = tuple(dict.fromkeys((*hosts, *_idle_hosts(graph, hosts))))
    ends = _memory_ends(graph, outer)
    return _beside_memory(outer, hosts, ends, box) if ends else _around(graph, outer, hosts, box)


def _idle_hosts(graph: Graph, hosts: tuple[str, ...]) -> list[str]:
    """Hosts without a rank: leaves of the network that carry none."""
    leaves = (node for node in graph if node not in hosts and len(set(nx.all_neighbors(graph, node))) <= 1)
    return sorted(leaves, key=natural)


def _memory_ends(graph: Graph, outer: tuple[str, ...]) -> Edge | None:
    """The one edge that every message crosses, where hosts are joined through one directed edge and nothing else."""
    switches = [node for node in graph if node not in outer]
    if len(switches) != 2:
        return None
    for a, b in (switches, switches[::-1]):
        if set(graph.edges) == {(a, b), *((host, a) for host in outer), *((b, host) for host in outer)}:
            return a, b
    return None


def _beside_memory(outer: tuple[str, ...], hosts: tuple[str, ...], ends: Edge, box: Box) -> Layout:
    """Ranks in a row above the memory, with many of them in one above and one below; lanes go straight into it."""
    above = len(outer) if len(outer) <= 8 else (len(outer) + 1) // 2
    below = len(outer) - above
    centre = 0.5 if below else 0.3
    memory = Box(*box.at(-0.04, centre - 0.12), *box.at(1.04, centre + 0.12))
    upper = [
        box.at(0.5 if above == 1 else 0.08 + 0.84 * i / (above - 1), 0.95 if below else 0.82) for i in range(above)
    ]
    lower = [box.at(0.08 + 0.84 * i / max(above - 1, 1), 0.05) for i in range(below)]
    places = dict(zip(outer, upper + lower, strict=True))
    radius = _fitting_radius(list(places.values()))
    lanes = {ends: np.array([(memory.left + 14, memory.middle[1]), (memory.right - 14, memory.middle[1])])}
    for host, (x, y) in places.items():
        side, aside = 1 if y > memory.top else -1, min(8.0, radius / 2)
        near, edge = y - side * radius, memory.top if side > 0 else memory.bottom
        lanes[host, ends[0]] = np.array([(x - aside, near), (x - aside, edge)])
        lanes[ends[1], host] = np.array([(x + aside, edge), (x + aside, near)])
    return Layout(places, hosts, dict.fromkeys(outer, radius), lanes, memory)


def _around(graph: Graph, outer: tuple[str, ...], hosts: tuple[str, ...], box: Box) -> Layout:
    """Hosts on the outermost ellipse, switches on inner ones by their distance from a host."""
    angles, layers = _host_angles(graph, outer), _layers(graph, outer)
    shares = dict.fromkeys(outer, 1.0)
    depth = len(layers) + (1 if layers and len(layers[-1]) > 1 else 0)
    for distance, layer in enumerate(layers, start=1):
        angles |= _switch_angles(graph, layer, angles)
        shares |= dict.fromkeys(layer, (1 - distance / depth) ** 1.3)
    places = _fitted(
        {node: (shares[node] * cos(angles[node]), shares[node] * sin(angles[node])) for node in angles}, box
    )
    radius = _fitting_radius([places[host] for host in outer])
    radii = {node: radius if node in outer else _switch_radius(graph, node, radius, len(layers)) for node in places}
    lanes = {(a, b): _lane(places, a, b, radii) for a, b in graph.edges}
    return Layout(places, hosts, radii, lanes)


def _fitted(places: dict[str, Point], box: Box) -> dict[str, Point]:
    """Stretched to fill the box in each direction in which they differ, and centred."""
    points = np.array(list(places.values()))
    low, high = points.min(axis=0), points.max(axis=0)
    spread = np.where(high - low > 1e-6, high - low, np.inf)
    return {node: box.at(*(0.5 + (np.array(place) - (low + high) / 2) / spread)) for node, place in places.items()}


def _host_angles(graph: Graph, outer: tuple[str, ...]) -> dict[str, float]:
    """Clockwise from the top, hosts on one switch together, a gap between one switch's hosts and the next's."""
    groups: dict[str, list[str]] = {}
    for host in outer:
        near = sorted(set(nx.all_neighbors(graph, host)) - set(outer), key=natural)
        groups.setdefault(near[0] if len(near) == 1 else "", []).append(host)
    gap = 1 if len(groups) > 1 else 0
    slot = 2 * pi / (len(outer) + gap * len(groups))
    first = len(next(iter(groups.values()))) - 1
    start = (pi if len(groups) == 2 or len(outer) == 2 else pi / 2) + (slot * first / 2 if gap else 0)
    seats = [host for group in groups.values() for host in (*group, *[""] * gap)]
    return {host: start - index * slot for index, host in enumerate(seats) if host}


def _layers(graph: Graph, outer: tuple[str, ...]) -> list[list[str]]:
    """The other nodes by how many links lie between them and the nearest host."""
    distance = nx.multi_source_dijkstra_path_length(graph.to_undirected(), set(outer), weight=lambda *_: 1)
    inner = [node for node in graph if node not in outer]
    farthest = max((int(distance.get(node, 1)) for node in inner), default=0)
    layers = [[node for node in inner if int(distance.get(node, 1)) == d] for d in range(1, farthest + 1)]
    return [sorted(layer, key=natural) for layer in layers]


def _switch_angles(graph: Graph, layer: list[str], angles: dict[str, float]) -> dict[str, float]:
    """Each towards the middle of what hangs from it; where some would coincide, evenly and between those below."""
    below = {node: [angles[peer] for peer in nx.all_neighbors(graph, node) if peer in angles] for node in layer}
    wanted = {node: _mean_angle(below[node]) for node in layer}
    slot = 2 * pi / len(layer)
    points = [(cos(angle), sin(angle)) for angle in wanted.values()]
    if _nearest(points) > 0.4 * min(slot, 1.0):
        return wanted
    kinds = {round(angle, 6) for peers in below.values() for angle in peers}
    start = pi / 2 + slot / 2 + pi / max(len(kinds), 1)
    return {node: start - index * slot for index, node in enumerate(layer)}


def _mean_angle(angles: Iterable[float]) -> float:
    points = [(cos(angle), sin(angle)) for angle in angles]
    x, y = sum(x for x, _ in points), sum(y for _, y in points)
    return round(atan2(y, x), 9) if hypot(x, y) > 1e-9 else pi / 2


def _nearest(points: list[Point]) -> float:
    """The distance of the two that are closest; infinite for fewer than two."""
    at = np.array(points)
    apart = np.hypot(*(at[:, None] - at[None]).transpose(2, 0, 1))
    return float((apart + np.diag(np.full(len(at), np.inf))).min())


def _fitting_radius(places: list[Point]) -> float:
    """As large as leaves a gap to the nearest neighbour, within limits."""
    return min(LARGEST_HOST, max(2.5, 0.34 * _nearest(places)))


def _switch_radius(graph: Graph, node: str, host_radius: float, layers: int) -> float:
    """Large enough for messages from many links to pass side by side, smaller where there are several layers."""
    room = 40.0 if layers == 1 else 16.0
    return min(room, max(min(13.0, host_radius), 3.5 * len(set(nx.all_neighbors(graph, node)))))


def _lane(places: dict[str, Point], a: str, b: str, radii: dict[str, float]) -> Line:
    """From a to b, kept to the right as on a road, from where one symbol ends to where the other begins."""
    start, end = np.array(places[a]), np.array(places[b])
    length = float(np.hypot(*(end - start))) or 1.0
    along = (end - start) / length
    aside = np.array([along[1], -along[0]]) * min(4.5, 0.3 * min(radii[a], radii[b]))
    near, far = (min(radii[node], length / 3) for node in (a, b))
    return np.array([start + along * near + aside, end - along * far + aside])
