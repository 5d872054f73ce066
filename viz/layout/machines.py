"""Lay out GPU machines and tori.

The parts of machines are drawn in rows. NVSwitches are below the GPUs. PCIe switches, CPUs, memory, NICs and the
network are above. A torus is a grid. If it has three dimensions, its planes are drawn behind each other. Wrap-around
links are arcs.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from math import cos, inf, pi, sin

import networkx as nx
import numpy as np

from viz.layout.geometry import (
    Box,
    Edge,
    Graph,
    Layout,
    Line,
    Point,
    bend_line,
    fit_into,
    fitting_radius,
    line_between,
    natural_order,
    nearest_distances,
)

# rows from the bottom; a switch of a higher tier stands above the last row
ROWS = {"nvswitch": 0, "gpu": 1, "host": 1, "pcie": 2, "cpu": 3, "memory": 4, "nic": 5, "switch": 6}


def place_in_rows(graph: Graph, hosts: Sequence[str]) -> dict[str, Point]:
    """Return the position of each node, with one row per kind of node.

    The nodes form a circle if all are hosts, or if all are GPUs and there are at most eight.
    """
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
    for node, (x, y) in positions.items():
        cpus = nx.all_neighbors(graph, node) if kinds[node] == "memory" else ()
        if any(kinds[peer] == "nic" for cpu in cpus for peer in nx.all_neighbors(graph, cpu)):
            positions[node] = (x - 1.0, y)  # keeps links between NICs and CPU visible
    return positions


def kind_of(graph: Graph, node: str, hosts: Sequence[str]) -> str:
    """Return the ``kind`` of a node in the graph. Its default is ``host`` for nodes in ``hosts``, else ``switch``."""
    kind: str = graph.nodes[node].get("kind") or ("host" if node in hosts else "switch")
    return kind


def _row(graph: Graph, row: list[str], y: float, placed: dict[str, Point]) -> dict[str, Point]:
    """Return the positions of a row's nodes, each near its neighbors in ``placed`` and without overlap."""
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


PART = re.compile(r"n\d+\.([a-z]+)\d*")  # as simcomm.cluster.machines names them
SMALLEST, LARGEST = 2.5, 17.0  # pixels of a symbol's radius
ARC_HEIGHT = 48.0  # pixels between the highest arc and its row


def lay_out_machines(graph: Graph, hosts: tuple[str, ...], used: set[str], box: Box) -> Layout | None:
    """Return the layout of machines whose ranks are GPUs, or None if a rank is not a GPU.

    Memory and NICs with at most one neighbor are left out unless they are in ``used``.
    """
    if not all(part_kind(host) == "gpu" for host in hosts):
        return None
    dead_ends = {
        node for node in graph if part_kind(node) in ("memory", "nic") and len(set(nx.all_neighbors(graph, node))) <= 1
    }
    shown = _with_kinds(graph, [node for node in graph if node in used or node not in dead_ends])
    at = place_in_rows(shown, hosts)
    positions = fit_into(_without_arcs(shown, at, box), at)
    radius = min(LARGEST, fitting_radius([positions[host] for host in hosts]))
    room = nearest_distances(positions)
    radii = {n: radius if n in hosts else max(SMALLEST, min(LARGEST, 0.36 * room[n])) for n in positions}
    kinds = {node: kind for node in shown if (kind := part_kind(node)) is not None}
    lines = {(a, b): line_between(positions, a, b, radii) for a, b in shown.edges}
    for a, b in lines:
        if height := _arc_height(at, a, b, kinds.get(a) == "gpu"):
            lines[a, b] = bend_line(lines[a, b], (0.0, height))
    return Layout(positions, hosts, radii, lines, kinds=kinds)


def part_kind(node: str) -> str | None:
    """Return the kind of a machine part, such as ``gpu``, or None if the node is not a machine part.

    >>> part_kind("n0.gpu3"), part_kind("s0")
    ('gpu', None)
    """
    match = PART.fullmatch(node)
    return match[1] if match else None


def _with_kinds(graph: Graph, nodes: Iterable[str]) -> Graph:
    """Return the subgraph of ``nodes`` with kinds. Switches also get ``tier``, the number of hops to a NIC."""
    shown: Graph = nx.DiGraph(graph.subgraph(nodes).edges)
    shown.add_nodes_from(nodes)
    nics = {node for node in shown if part_kind(node) == "nic"}
    tiers = nx.multi_source_dijkstra_path_length(shown.to_undirected(), nics, weight=lambda *_: 1) if nics else {}
    for node in shown:
        kind = part_kind(node)
        shown.nodes[node].update({"kind": kind} if kind else {"kind": "switch", "tier": int(tiers.get(node, 1))})
    return shown


def _without_arcs(graph: Graph, at: dict[str, Point], box: Box) -> Box:
    """Return ``box`` without the space that arcs need below the lowest row and above the highest row."""
    heights = {
        at[a][1]: _arc_height(at, a, b, part_kind(a) == "gpu") for a, b in graph.edges if _passes_others(at, a, b)
    }
    low, high = (limit(y for _, y in at.values()) for limit in (min, max))
    below, above = min(0.0, heights.get(low, 0.0)), max(0.0, heights.get(high, 0.0))
    return Box(box.left, box.bottom + ARC_HEIGHT * (below < 0), box.right, box.top - ARC_HEIGHT * (above > 0))


def _passes_others(at: dict[str, Point], a: str, b: str) -> bool:
    (x, y), (u, v) = at[a], at[b]
    return y == v and abs(u - x) > 1


def _arc_height(at: dict[str, Point], a: str, b: str, is_gpu: bool) -> float:
    """Return the height in pixels of a link's arc around other nodes of its row, or 0 if the link needs no arc.

    Arcs between GPUs are below the row: their heights are negative. The two directions have different heights.
    """
    if not _passes_others(at, a, b):
        return 0.0
    far = at[b][0] - at[a][0]
    return ARC_HEIGHT * min(1.0, 0.3 + 0.1 * abs(far)) * (1.0 if far > 0 else 0.85) * (-1 if is_gpu else 1)


ARC_SHARE = 0.36  # height of an arc as a share of the distance between rows or columns
HIGHEST = 26.0  # pixels of an arc
BEHIND = 0.27  # offset from one plane to the next: columns to the right, rows upwards

Shape = tuple[int, int, int]  # planes, rows and columns
Seat = tuple[int, int, int]  # plane, row and column of a host


def lay_out_torus(graph: Graph, hosts: tuple[str, ...], box: Box) -> Layout | None:
    """Return the layout of a torus with its first row on top, or None if the network is not a torus."""
    seats = _find_seats(graph)
    if not seats or set(seats) != set(hosts):
        return None
    at = {node: (x + BEHIND * z, BEHIND * z - y) for node, (z, y, x) in seats.items()}
    positions = fit_into(Box(box.left, box.bottom, box.right - HIGHEST, box.top - HIGHEST), at)
    radius = fitting_radius(list(positions.values()))
    radii = dict.fromkeys(seats, radius)
    (x, y), (u, v) = np.ptp(list(positions.values()), axis=0), np.ptp(list(at.values()), axis=0)
    cell = float(x / u), float(y / v)  # pixels between columns and between rows
    lines = {(a, b): _torus_line(positions, seats, a, b, radii, cell) for a, b in graph.edges}
    return Layout(positions, hosts, radii, lines)


def torus_seats(graph: Graph) -> dict[str, Point]:
    """Return the position of each host in a unit box with y downwards, or {} if the network is not a torus."""
    at = {node: (x + BEHIND * z, y - BEHIND * z) for node, (z, y, x) in _find_seats(graph).items()}
    return fit_into(Box(0.0, 0.0, 1.0, 1.0), at) if at else {}


def _find_seats(graph: Graph) -> dict[str, Seat]:
    """Return the plane, row and column of each host, or {} if the network is not a torus."""
    nodes, edges = sorted(graph, key=natural_order), set(graph.edges)
    shape = next((shape for shape in _shapes(len(nodes)) if _torus_edges(nodes, shape) == edges), None)
    if shape is None:
        return {}
    return {node: (int(z), int(y), int(x)) for node, (z, y, x) in zip(nodes, np.ndindex(shape), strict=True)}


def _shapes(size: int) -> Iterator[Shape]:
    """Yield the possible shapes of a torus with ``size`` hosts, two-dimensional shapes first."""
    for planes in (planes for planes in range(1, size // 4 + 1) if size % planes == 0 and size > 4):
        plane = size // planes
        yield from ((planes, plane // width, width) for width in range(2, plane // 2 + 1) if plane % width == 0)


def _torus_edges(nodes: list[str], shape: Shape) -> set[Edge]:
    """Return the edges from each host to its neighbors in each dimension, with wrap-around."""
    at = np.arange(len(nodes)).reshape(shape)
    neighbours = [np.roll(at, step, axis).ravel() for axis in range(3) if shape[axis] > 1 for step in (1, -1)]
    return {(node, nodes[peers[index]]) for peers in neighbours for index, node in enumerate(nodes)}


def _torus_line(
    positions: dict[str, Point], seats: dict[str, Seat], a: str, b: str, radii: dict[str, float], cell: Point
) -> Line:
    """Return a straight line to a neighbor, or an arc for a wrap-around link."""
    line = line_between(positions, a, b, radii)
    steps = np.subtract(seats[b], seats[a])
    if abs(steps).max() == 1:
        return line
    aside = 1.0 if seats[a] < seats[b] else 0.8  # keeps the two directions apart
    over, beside = aside * min(HIGHEST, ARC_SHARE * cell[1]), aside * min(HIGHEST, ARC_SHARE * cell[0])
    return bend_line(line, (0.0, over) if steps[2] else (beside, 0.0) if steps[1] else (beside / 2, -over / 2))
