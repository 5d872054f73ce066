"""Choose a layout for a network, and place its hosts, switches and links.

GPU machines are drawn in rows, with one row per kind of part. A torus is a grid. The ranks of a single machine are
drawn next to its memory. Hosts form a circle if they are on one switch or have only direct links. Hosts on two switches
form two racks. If there are more switches, each tier is a row, with the ranks at the bottom. One tier of switches that
are linked to each other forms an inner circle. The same network always gets the same positions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import cos, pi, sin
from statistics import fmean

import networkx as nx
import numpy as np

from collectives.records.trace import Trace
from viz.layout.geometry import (
    Box,
    Edge,
    Graph,
    Layout,
    Point,
    fit_into,
    fitting_radius,
    line_between,
    natural_order,
    nearest_distances,
)
from viz.layout.machines import lay_out_machines, lay_out_torus, torus_seats

INNER = 0.6  # radius of the inner circle, as a fraction of the outer radius


def traced_graph(trace: Trace) -> Graph:
    """Return the graph of all nodes and directed edges that occur in the trace's links or message routes."""
    graph: Graph = nx.DiGraph()
    graph.add_nodes_from(hosts_of(trace))
    graph.add_edges_from((link.src, link.dst) for link in trace.links)
    for route in set(used_routes(trace)):
        graph.add_edges_from(pairwise(route))
    graph.add_nodes_from(trace.nodes if graph.edges else ())
    return graph


def hosts_of(trace: Trace) -> tuple[str, ...]:
    """Return the node of each rank, or ``h0``, ``h1``, ... if the trace does not name them."""
    return (
        tuple(trace.hosts) if len(trace.hosts) == trace.world_size else tuple(f"h{r}" for r in range(trace.world_size))
    )


def used_nodes(trace: Trace) -> set[str]:
    """Return the nodes on the route of any message."""
    return {node for route in used_routes(trace) for node in route}


def used_routes(trace: Trace) -> list[tuple[str, ...]]:
    """Return the routes of all messages, without duplicates."""
    return [trace.messages.routes[number] for number in np.unique(trace.messages.route).tolist()]


def idle_hosts(graph: Graph, hosts: tuple[str, ...]) -> list[str]:
    """Return the hosts that run no rank: nodes outside ``hosts`` with at most one neighbor."""
    leaves = (node for node in graph if node not in hosts and len(set(nx.all_neighbors(graph, node))) <= 1)
    return sorted(leaves, key=natural_order)


def memory_edge(graph: Graph, hosts: tuple[str, ...]) -> Edge | None:
    """Return the edge that represents the shared memory if the network is a single machine, otherwise None."""
    switches = [node for node in graph if node not in hosts]
    if len(switches) != 2:
        return None
    for a, b in (switches, switches[::-1]):
        if set(graph.edges) == {(a, b), *((host, a) for host in hosts), *((b, host) for host in hosts)}:
            return a, b
    return None


def is_through_memory(trace: Trace) -> bool:
    """Return whether the trace's ranks communicate through the memory of one machine."""
    return memory_edge(traced_graph(trace), hosts_of(trace)) is not None


@dataclass(frozen=True)
class Placement:
    """The name of a layout, such as ``circle``, and the position of each node."""

    kind: str  # circle, star, memory, racks, grid or tiers
    at: dict[str, Point]


def place_nodes(graph: Graph, hosts: Sequence[str]) -> Placement:
    """Choose a layout for a network, and return its name and node positions. ``hosts`` has the node of each rank.

    >>> place_nodes(nx.DiGraph([("h0", "h1"), ("h1", "h0")]), ["h0", "h1"])
    Placement(kind='circle', at={'h0': (0.0, 0.5), 'h1': (1.0, 0.5)})
    """
    hosts = list(dict.fromkeys(hosts))
    inner = sorted((node for node in graph if node not in set(hosts)), key=natural_order)
    if not inner:
        if seats := torus_seats(graph):
            return Placement("grid", seats)
        if len(hosts) == 8 and ".gpu" in hosts[0]:  # the GPUs of one machine: two rows of four
            return Placement("circle", _circle([*hosts[:4], *hosts[:3:-1]], -pi))
        return Placement("circle", _circle(hosts))
    if len(inner) == 1:
        return Placement("star", _circle(hosts) | {inner[0]: (0.5, 0.5)})
    if memory_edge(graph, tuple(hosts)):
        return Placement("memory", _circle(hosts) | {inner[0]: (0.47, 0.5), inner[1]: (0.53, 0.5)})
    if len(inner) == 2:
        return Placement("racks", _racks(graph, hosts, inner))
    tiers = find_tiers(graph, hosts)
    if max(tiers.values()) == 1 and any(b in inner for a in inner for b in graph.successors(a)):
        return Placement("star", _circle(hosts) | _inner_circle(graph, inner, _circle(hosts)))
    return Placement("tiers", _rows(graph, hosts, tiers))


def find_tiers(graph: Graph, hosts: Sequence[str]) -> dict[str, int]:
    """Return the number of links from each node to the nearest of ``hosts``. A node without a path to them gets 1."""
    sources = {host for host in hosts if host in graph}
    lengths = nx.multi_source_dijkstra_path_length(graph.to_undirected(as_view=True), sources, weight=lambda *_: 1)
    return {node: int(lengths.get(node, 1)) for node in graph}


def _circle(names: Sequence[str], start: float | None = None) -> dict[str, Point]:
    """Return positions on a circle, clockwise from the angle ``start``.

    By default, the first node is at the top, or on the left if there are two nodes.
    """
    start = start if start is not None else pi if len(names) == 2 else -pi / 2
    angles = [start + 2 * pi * index / len(names) for index in range(len(names))]
    return {
        name: (round(0.5 + 0.5 * cos(angle), 12), round(0.5 + 0.5 * sin(angle), 12))
        for name, angle in zip(names, angles, strict=True)
    }


def _inner_circle(graph: Graph, inner: Sequence[str], outer: dict[str, Point]) -> dict[str, Point]:
    """Return the positions of switches on a smaller circle, in the order of their hosts."""
    order = list(outer)
    first = {
        node: min((order.index(peer) for peer in graph.predecessors(node) if peer in outer), default=0)
        for node in inner
    }
    ordered = sorted(inner, key=lambda node: (first[node], natural_order(node)))
    start = -pi / 2 + pi * (len(order) / len(inner) - 1) / len(order)  # over the middle of the first switch's hosts
    return {
        node: (0.5 + INNER * (x - 0.5), 0.5 + INNER * (y - 0.5)) for node, (x, y) in _circle(ordered, start).items()
    }


def _racks(graph: Graph, hosts: list[str], switches: list[str]) -> dict[str, Point]:
    """Return the positions of two switches in the middle, and of the hosts of each switch on an arc next to it."""
    at = {switches[0]: (0.33, 0.5), switches[1]: (0.67, 0.5)}
    for switch, x, side in ((switches[0], 0.29, -1), (switches[1], 0.71, 1)):
        rack_hosts = [host for host in hosts if switch in graph[host]]
        for index, host in enumerate(rack_hosts):
            angle = (index / max(len(rack_hosts) - 1, 1) - 0.5) * pi * 0.92
            at[host] = (x + side * 0.29 * cos(angle), 0.5 + 0.5 * sin(angle))
    for host in hosts:
        at.setdefault(host, (0.5, 0.0))
    return at


def _rows(graph: Graph, hosts: list[str], tiers: dict[str, int]) -> dict[str, Point]:
    """Return positions with hosts in the lowest row, and switches above it by tier and near their lower neighbors."""
    top = max(tiers.values()) or 1
    undirected = graph.to_undirected(as_view=True)
    at = {host: ((index + 0.5) / len(hosts), 1.0) for index, host in enumerate(hosts)}
    for level in range(1, top + 1):
        row = [node for node in graph if node not in at and tiers[node] == level]
        middle = {node: fmean([at[below][0] for below in undirected[node] if below in at] or [0.5]) for node in row}
        for index, node in enumerate(sorted(row, key=lambda node: (middle[node], natural_order(node)))):
            at[node] = ((index + 0.5) / len(row), 1 - level / top)
    return at


def lay_out_memory(all_hosts: tuple[str, ...], hosts: tuple[str, ...], memory_edge: Edge, box: Box) -> Layout:
    """Return a layout with the ranks above the memory. If there are more than eight, half of them are below it."""
    above = len(all_hosts) if len(all_hosts) <= 8 else (len(all_hosts) + 1) // 2
    below = len(all_hosts) - above
    centre = 0.5 if below else 0.3
    memory = Box(*box.at(-0.04, centre - 0.12), *box.at(1.04, centre + 0.12))
    upper = [
        box.at(0.5 if above == 1 else 0.08 + 0.84 * i / (above - 1), 0.95 if below else 0.82) for i in range(above)
    ]
    lower = [box.at(0.08 + 0.84 * i / max(above - 1, 1), 0.05) for i in range(below)]
    positions = dict(zip(all_hosts, upper + lower, strict=True))
    radius = fitting_radius(list(positions.values()))
    lines = {memory_edge: np.array([(memory.left + 14, memory.middle[1]), (memory.right - 14, memory.middle[1])])}
    for host, (x, y) in positions.items():
        side, aside = 1 if y > memory.top else -1, min(8.0, radius / 2)
        near, edge = y - side * radius, memory.top if side > 0 else memory.bottom
        lines[host, memory_edge[0]] = np.array([(x - aside, near), (x - aside, edge)])
        lines[memory_edge[1], host] = np.array([(x + aside, edge), (x + aside, near)])
    return Layout(positions, hosts, dict.fromkeys(all_hosts, radius), lines, memory)


def lay_out(trace: Trace, box: Box) -> Layout:
    """Return the layout of a trace's network. The centers of all hosts are inside ``box``.

    >>> layout = lay_out(Trace("two ranks", "predicted", 2, 1.0), Box(0, 0, 100, 100))
    >>> {host: (float(x), float(y)) for host, (x, y) in layout.positions.items()}
    {'h0': (0.0, 50.0), 'h1': (100.0, 50.0)}
    """
    graph, hosts = traced_graph(trace), hosts_of(trace)
    regular = lay_out_machines(graph, hosts, used_nodes(trace), box) or lay_out_torus(graph, hosts, box)
    if regular:
        return regular
    all_hosts = tuple(dict.fromkeys((*hosts, *idle_hosts(graph, hosts))))
    if memory := memory_edge(graph, all_hosts):
        return lay_out_memory(all_hosts, hosts, memory, box)
    placed = place_nodes(graph, all_hosts)
    positions = fit_into(box, {node: (x, -y) for node, (x, y) in placed.at.items()})
    radius = fitting_radius([positions[host] for host in all_hosts])
    room = nearest_distances(positions)
    inner = [node for node in positions if node not in all_hosts]
    radii, largest = dict.fromkeys(all_hosts, radius), 40.0 if len(inner) <= 2 else 16.0
    for node in inner:  # large enough for messages of many links side by side
        links = len(set(nx.all_neighbors(graph, node)))
        radii[node] = min(largest, max(min(13.0, radius), 3.5 * links), 0.45 * room[node])
    lines = {(a, b): line_between(positions, a, b, radii) for a, b in graph.edges}
    return Layout(positions, hosts, radii, lines)
