"""Where hosts and switches stand, in pixels with y upwards, and the lines on which messages travel.

The GPUs of machines stand in a row with their switches and CPUs above, the hosts of a torus in rows and columns. Other
hosts stand on an ellipse, clockwise by rank and beside those on the same switch; switches stand on smaller ellipses,
the further from a host the nearer to the middle. Everything follows from names and links: no chance, no iteration.
"""

from collections.abc import Iterable
from itertools import pairwise
from math import atan2, cos, hypot, pi, sin

import networkx as nx
import numpy as np

from collectives.records.trace import Trace
from viz.layout.geometry import (
    Box,
    Edge,
    Graph,
    Layout,
    fitted,
    fitting_radius,
    lane_between,
    natural,
    nearest,
    nearest_of_each,
)
from viz.layout.grid import on_grid
from viz.layout.machines import in_machines


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
    regular = in_machines(graph, hosts, _used(trace), box) or on_grid(graph, hosts, box)
    if regular:
        return regular
    outer = tuple(dict.fromkeys((*hosts, *_idle_hosts(graph, hosts))))
    ends = _memory_ends(graph, outer)
    return _beside_memory(outer, hosts, ends, box) if ends else _around(graph, outer, hosts, box)


def _used(trace: Trace) -> set[str]:
    """Nodes that some message passes."""
    return {node for route in {message.route for message in trace.messages} for node in route}


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
    radius = fitting_radius(list(places.values()))
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
    places = fitted(
        {node: (shares[node] * cos(angles[node]), shares[node] * sin(angles[node])) for node in angles}, box
    )
    radius = fitting_radius([places[host] for host in outer])
    room = nearest_of_each(places)
    radii = {
        node: radius if node in outer else min(_switch_radius(graph, node, radius, len(layers)), 0.45 * room[node])
        for node in places
    }
    lanes = {(a, b): lane_between(places, a, b, radii) for a, b in graph.edges}
    return Layout(places, hosts, radii, lanes)


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
    if nearest(points) > 0.4 * min(slot, 1.0):
        return wanted
    kinds = {round(angle, 6) for peers in below.values() for angle in peers}
    start = pi / 2 + slot / 2 + pi / max(len(kinds), 1)
    return {node: start - index * slot for index, node in enumerate(layer)}


def _mean_angle(angles: Iterable[float]) -> float:
    points = [(cos(angle), sin(angle)) for angle in angles]
    x, y = sum(x for x, _ in points), sum(y for _, y in points)
    return round(atan2(y, x), 9) if hypot(x, y) > 1e-9 else pi / 2


def _switch_radius(graph: Graph, node: str, host_radius: float, layers: int) -> float:
    """Large enough for messages from many links to pass side by side, smaller where there are several layers."""
    room = 40.0 if layers == 1 else 16.0
    return min(room, max(min(13.0, host_radius), 3.5 * len(set(nx.all_neighbors(graph, node)))))
