"""Where nodes stand, by the kind of network, in a unit box with y downwards: for still pictures, film and player.

One switch and direct links: a circle. Two switches: racks left and right of them. A torus: rows and columns. Machines
and more tiers of switches: rows, with the ranks at the bottom. Switches of one tier that are joined with each other: an
inner circle.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import cos, pi, sin
from statistics import fmean

import networkx as nx

from viz.layout.geometry import Graph, Point, natural_order
from viz.layout.machines import torus_seats
from viz.layout.traced_graph import memory_edge

INNER = 0.6  # of the radius of the outer circle


@dataclass(frozen=True)
class Placement:
    """The kind of layout, and where each node stands."""

    kind: str  # circle, star, memory, racks, grid or tiers
    at: dict[str, Point]


def place_nodes(graph: Graph, hosts: Sequence[str]) -> Placement:
    """Return where the nodes of a network stand; ``hosts`` are those of the ranks, in their order.

    >>> place_nodes(nx.DiGraph([("h0", "h1"), ("h1", "h0")]), ["h0", "h1"])
    Placement(kind='circle', at={'h0': (0.0, 0.5), 'h1': (1.0, 0.5)})
    """
    hosts = list(dict.fromkeys(hosts))
    inner = sorted((node for node in graph if node not in set(hosts)), key=natural_order)
    if not inner:
        seats = torus_seats(graph)
        return Placement("grid", seats) if seats else Placement("circle", _mesh_circle(hosts))
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
    """Return how many links lie between each node and the nearest of ``hosts``; 1 where there is no way."""
    there = [host for host in hosts if host in graph]
    found = nx.multi_source_dijkstra_path_length(graph.to_undirected(as_view=True), set(there), weight=lambda *_: 1)
    return {node: int(found.get(node, 1)) for node in graph}


def _circle(names: Sequence[str], start: float | None = None) -> dict[str, Point]:
    """Return names clockwise from the top, or from ``start``; two side by side."""
    start = start if start is not None else pi if len(names) == 2 else -pi / 2
    angles = [start + 2 * pi * index / len(names) for index in range(len(names))]
    return {
        name: (round(0.5 + 0.5 * cos(angle), 12), round(0.5 + 0.5 * sin(angle), 12))
        for name, angle in zip(names, angles, strict=True)
    }


def _mesh_circle(hosts: list[str]) -> dict[str, Point]:
    """Return hosts that are linked directly on a circle; the eight GPUs of one machine as two rows of four."""
    if len(hosts) != 8 or ".gpu" not in hosts[0]:
        return _circle(hosts)
    return _circle([*hosts[:4], *hosts[:3:-1]], -pi / 2 - 3 * pi / 8 - pi / 8)


def _inner_circle(graph: Graph, inner: Sequence[str], outer: dict[str, Point]) -> dict[str, Point]:
    """Return switches evenly on a smaller circle, in the order of the hosts that are linked to them."""
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
    """Return two switches in the middle, the hosts of each on an arc beside it."""
    at = {switches[0]: (0.33, 0.5), switches[1]: (0.67, 0.5)}
    for switch, x, side in ((switches[0], 0.29, -1), (switches[1], 0.71, 1)):
        own = [host for host in hosts if switch in graph[host]]
        for index, host in enumerate(own):
            angle = (index / max(len(own) - 1, 1) - 0.5) * pi * 0.92
            at[host] = (x + side * 0.29 * cos(angle), 0.5 + 0.5 * sin(angle))
    for host in hosts:
        at.setdefault(host, (0.5, 0.0))
    return at


def _rows(graph: Graph, hosts: list[str], tiers: dict[str, int]) -> dict[str, Point]:
    """Return hosts in the lowest row, every other node as many rows above as links away, over the middle of its own."""
    top = max(tiers.values()) or 1
    undirected = graph.to_undirected(as_view=True)
    at = {host: ((index + 0.5) / len(hosts), 1.0) for index, host in enumerate(hosts)}
    for level in range(1, top + 1):
        row = [node for node in graph if node not in at and tiers[node] == level]
        middle = {node: fmean([at[below][0] for below in undirected[node] if below in at] or [0.5]) for node in row}
        for index, node in enumerate(sorted(row, key=lambda node: (middle[node], natural_order(node)))):
            at[node] = ((index + 0.5) / len(row), 1 - level / top)
    return at
