"""Positions of the nodes of a network when those of a kind stand in a row, each above its neighbours further down."""

from collections.abc import Sequence
from itertools import groupby
from math import cos, inf, pi, sin

import networkx as nx

from viz.layout.geometry import Graph, Point, natural_order

ROWS = {
    "nvswitch": 0,
    "gpu": 1,
    "host": 1,
    "pcie": 2,
    "cpu": 3,
    "memory": 4,
    "nic": 5,
    "switch": 6,
}  # a switch of a higher tier stands above that


def place_in_rows(graph: Graph, hosts: Sequence[str]) -> dict[str, Point]:
    """Return the position of each node: in rows by kind, above its neighbours; without any switch in a circle."""
    kinds = {node: kind_of(graph, node, hosts) for node in graph}
    if set(kinds.values()) <= {"host"} or (set(kinds.values()) == {"gpu"} and len(graph) <= 8):
        return _circle(sorted(graph, key=natural_order))
    level = {node: ROWS[kind] + graph.nodes[node].get("tier", 1) * (kind == "switch") for node, kind in kinds.items()}
    height = {row: float(y) for y, row in enumerate(sorted(set(level.values())))}
    order = [node for node in graph if kinds[node] in ("host", "gpu")]
    positions = {node: (float(x), height[level[node]]) for x, node in enumerate(order)}
    others = [row for row in height if row > ROWS["gpu"]] + [row for row in height if row < ROWS["gpu"]]
    for row in others:
        positions |= _row(graph, [node for node in graph if level[node] == row], height[row], positions)
    return positions | {
        node: (x - 1.0, y)
        for node, (x, y) in positions.items()
        if kinds[node] == "memory" and _is_below_nics(graph, node)
    }


def _is_below_nics(graph: Graph, memory: str) -> bool:
    """Return whether NICs hang on the CPU of this memory, so that their links would be drawn across it."""
    cpus = nx.all_neighbors(graph, memory)
    return any(graph.nodes[peer].get("kind") == "nic" for cpu in cpus for peer in nx.all_neighbors(graph, cpu))


def kind_of(graph: Graph, node: str, hosts: Sequence[str]) -> str:
    """Return the kind that the graph states; where it states none, ``host`` or ``switch``."""
    kind: str = graph.nodes[node].get("kind") or ("host" if node in hosts else "switch")
    return kind


def _row(graph: Graph, row: list[str], y: float, placed: dict[str, Point]) -> dict[str, Point]:
    """Put each node above the middle of its neighbours in ``placed``, and no two at one position."""
    wanted = {}
    for node in row:
        near = [placed[peer][0] for peer in nx.all_neighbors(graph, node) if peer in placed]
        wanted[node] = sum(near) / len(near) if near else 0.0
    order = sorted(row, key=lambda node: (wanted[node], natural_order(node)))
    spread, last = {}, -inf
    for x, alike in groupby(order, key=lambda node: wanted[node]):
        nodes = list(alike)
        for number, node in enumerate(nodes):
            last = max(last + 0.9, x + 0.9 * (number - (len(nodes) - 1) / 2))
            spread[node] = (last, y)
    return spread


def _circle(nodes: list[str]) -> dict[str, Point]:
    radius = max(1.5, len(nodes) / (2 * pi))
    angle = 2 * pi / len(nodes)
    return {n: (radius * sin((i + 0.5) * angle), radius * cos((i + 0.5) * angle)) for i, n in enumerate(nodes)}
