"""Where the nodes of a network stand when those of a kind stand in a row, each above what hangs from it."""

from collections.abc import Sequence
from itertools import groupby
from math import cos, inf, pi, sin

import networkx as nx

from viz.layout.geometry import Graph, Point, natural

ROWS = {
    "nvswitch": 0,
    "gpu": 1,
    "host": 1,
    "pcie": 2,
    "cpu": 3,
    "memory": 4,
    "nic": 5,
    "switch": 6,
}  # of more tiers, above


def place_nodes(graph: Graph, hosts: Sequence[str]) -> dict[str, Point]:
    """Where each node stands: in rows by kind, above what hangs from it; without any switch in a circle."""
    kinds = {node: kind_of(graph, node, hosts) for node in graph}
    if set(kinds.values()) <= {"host"} or (set(kinds.values()) == {"gpu"} and len(graph) <= 8):
        return _circle(sorted(graph, key=natural))
    level = {node: ROWS[kind] + graph.nodes[node].get("tier", 1) * (kind == "switch") for node, kind in kinds.items()}
    height = {row: float(y) for y, row in enumerate(sorted(set(level.values())))}
    order = [node for node in graph if kinds[node] in ("host", "gpu")]
    places = {node: (float(x), height[level[node]]) for x, node in enumerate(order)}
    others = [row for row in height if row > ROWS["gpu"]] + [row for row in height if row < ROWS["gpu"]]
    for row in others:
        places |= _row(graph, [node for node in graph if level[node] == row], height[row], places)
    return places | {
        node: (x - 1.0, y) for node, (x, y) in places.items() if kinds[node] == "memory" and _is_in_the_way(graph, node)
    }


def _is_in_the_way(graph: Graph, memory: str) -> bool:
    """Whether NICs hang on the CPU of this memory, so that their cables would run across it."""
    cpus = nx.all_neighbors(graph, memory)
    return any(graph.nodes[peer].get("kind") == "nic" for cpu in cpus for peer in nx.all_neighbors(graph, cpu))


def kind_of(graph: Graph, node: str, hosts: Sequence[str]) -> str:
    kind: str = graph.nodes[node].get("kind") or ("host" if node in hosts else "switch")
    return kind


def _row(graph: Graph, row: list[str], y: float, placed: dict[str, Point]) -> dict[str, Point]:
    """Each above the middle of its neighbours that have a place, and no two in one place."""
    wanted = {}
    for node in row:
        near = [placed[peer][0] for peer in nx.all_neighbors(graph, node) if peer in placed]
        wanted[node] = sum(near) / len(near) if near else 0.0
    order = sorted(row, key=lambda node: (wanted[node], natural(node)))
    spread, last = {}, -inf
    for place, alike in groupby(order, key=lambda node: wanted[node]):
        nodes = list(alike)
        for number, node in enumerate(nodes):
            last = max(last + 0.9, place + 0.9 * (number - (len(nodes) - 1) / 2))
            spread[node] = (last, y)
    return spread


def _circle(nodes: list[str]) -> dict[str, Point]:
    radius = max(1.5, len(nodes) / (2 * pi))
    turn = 2 * pi / len(nodes)
    return {n: (radius * sin((i + 0.5) * turn), radius * cos((i + 0.5) * turn)) for i, n in enumerate(nodes)}
