"""Geometry of a drawing: points, lines, boxes, and the layout of a network. The y axis points upwards."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

import networkx as nx
import numpy as np
import numpy.typing as npt

Graph: TypeAlias = "nx.DiGraph[str]"
Point = tuple[float, float]
Edge = tuple[str, str]  # one direction of a link in a Graph
Line = npt.NDArray[np.float64]  # [points, 2]

LARGEST_HOST = 22.0
ROWS = 64  # rows of the distance table that are computed at once


@dataclass(frozen=True)
class Box:
    """A rectangle in a picture.

    >>> Box(left=0, bottom=0, right=40, top=20).middle
    (20.0, 10.0)
    """

    left: float
    bottom: float
    right: float
    top: float

    @classmethod
    def around(cls, x: float, y: float, radius: float, tall: float | None = None) -> "Box":
        """Return a box with its center at (x, y). Its width is ``2 * radius``, and its height is ``2 * tall``.

        ``tall`` defaults to ``radius``.
        """
        tall = radius if tall is None else tall
        return cls(x - radius, y - tall, x + radius, y + tall)

    @property
    def middle(self) -> Point:
        """The center of the box."""
        return self.at(0.5, 0.5)

    def at(self, x: float, y: float) -> Point:
        """Return the point at a fraction ``x`` of the width and a fraction ``y`` of the height."""
        return self.left + x * (self.right - self.left), self.bottom + y * (self.top - self.bottom)


@dataclass(frozen=True)
class Layout:
    """The position and symbol radius of each node, and a separate line for each direction of a link."""

    positions: dict[str, Point]
    hosts: tuple[str, ...]  # node of each rank
    radii: dict[str, float]  # radius of each node's symbol
    lines: dict[Edge, Line]
    memory: Box | None = None  # the box that represents the two ends of this machine's memory
    kinds: dict[str, str] = field(default_factory=dict)  # kinds of machine parts, such as nic; other nodes are switches

    @property
    def radius(self) -> float:
        """The radius of a host's symbol."""
        return self.radii[self.hosts[0]]

    def route_line(self, src: int, dst: int, route: tuple[str, ...]) -> Line:
        """Return the line between two ranks along ``route``, or a straight line if the route is empty."""
        if self.memory and len(route) == 4:
            return self._memory_line(self.memory, *route)
        nodes = route if len(route) > 1 else (self.hosts[src], self.hosts[dst])
        return np.concatenate([self._link_line(a, b) for a, b in pairwise(nodes)])

    def _link_line(self, a: str, b: str) -> Line:
        return self.lines[a, b] if (a, b) in self.lines else line_between(self.positions, a, b, self.radii)

    def _memory_line(self, memory: Box, src: str, into: str, out: str, dst: str) -> Line:
        """Return the line of a message from ``src`` through the memory box to ``dst``."""
        down, up, middle = self.lines[src, into], self.lines[out, dst], memory.middle[1]
        return np.array([down[0], (down[1][0], middle), (up[0][0], middle), up[1]])


def natural_order(name: str) -> list[tuple[int, str]]:
    """Return a sort key that compares numbers in names as numbers.

    >>> sorted(["h10", "h2"], key=natural_order)
    ['h2', 'h10']
    """
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def fit_into(box: Box, positions: dict[str, Point]) -> dict[str, Point]:
    """Scale positions so that they fill ``box``. If all positions on an axis are equal, they are centered."""
    points = np.array(list(positions.values()))
    low, high = points.min(axis=0), points.max(axis=0)
    spread = np.where(high - low > 1e-6, high - low, np.inf)
    return {node: box.at(*(0.5 + (np.array(point) - (low + high) / 2) / spread)) for node, point in positions.items()}


def nearest_distances(positions: dict[str, Point]) -> dict[str, float]:
    """Return the distance from each node to its nearest other node, or infinity for a single node."""
    return dict(zip(positions, _to_nearest(np.array(list(positions.values()))).tolist(), strict=True))


def _to_nearest(at: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the distance of each point ([points, 2]) to the nearest other point, or infinity for a single point."""
    if len(at) < 2:
        return np.full(len(at), np.inf)
    nearest = np.empty(len(at), np.intp)
    for first in range(0, len(at), ROWS):
        apart = ((at[first : first + ROWS, None] - at) ** 2).sum(axis=2)
        apart[np.arange(len(apart)), np.arange(first, first + len(apart))] = np.inf
        nearest[first : first + ROWS] = apart.argmin(axis=1)
    x, y = (at - at[nearest]).T
    return np.asarray(np.hypot(x, y), np.float64)


def fitting_radius(points: list[Point]) -> float:
    """Return a symbol radius of 34 % of the smallest distance between points, from 2.5 to ``LARGEST_HOST`` pixels."""
    least = float(_to_nearest(np.array(points)).min(initial=np.inf))
    return min(LARGEST_HOST, max(2.5, 0.34 * least))


def bend_line(line: Line, by: Point) -> Line:
    """Return a quadratic Bezier curve of nine points between the ends of ``line``, with its middle moved by ``by``."""
    start, end = line[0], line[-1]
    control = (start + end) / 2 + 2 * np.array(by)
    at = np.linspace(0.0, 1.0, 9)[:, None]
    return np.asarray((1 - at) ** 2 * start + 2 * at * (1 - at) * control + at**2 * end, dtype=np.float64)


def line_between(positions: dict[str, Point], a: str, b: str, radii: dict[str, float]) -> Line:
    """Return the line between two symbols, from border to border.

    The line is to the right of the centers, so that lines from ``a`` to ``b`` and from ``b`` to ``a`` are side by side.
    """
    start, end = np.array(positions[a]), np.array(positions[b])
    length = float(np.hypot(*(end - start))) or 1.0
    along = (end - start) / length
    aside = np.array([along[1], -along[0]]) * min(4.5, 0.3 * min(radii[a], radii[b]))
    near, far = (min(radii[node], length / 3) for node in (a, b))
    return np.array([start + along * near + aside, end - along * far + aside])


CLEARANCE = 0.17  # inches between a straight line and the middle of another node
DEPTH, DEEPER = 0.22, 0.17  # height of an arc over one node, and of each further node, in inches
PORT = 0.05  # inches between two arcs at a node
ASIDE = 0.3  # bend around other nodes of a line outside rows, in inches


def draw_lines(at: Mapping[str, Point], edges: Iterable[Edge], *, up: Iterable[str], in_rows: bool) -> dict[Edge, Line]:
    """Return the line of each edge. A straight line that would cross another node is bent around the node.

    If nodes are in rows, a bent line within a row is an arc. The arc is above the row if the edge starts at a node in
    ``up``, else below the row.

    >>> at = {"a": (0.0, 0.0), "b": (1.0, 0.0), "c": (2.0, 0.0)}
    >>> lines = draw_lines(at, [("a", "b"), ("a", "c")], up=[], in_rows=True)
    >>> len(lines["a", "b"]), round(float(lines["a", "c"][:, 1].min()), 2)
    (2, -0.22)
    """
    edges, above = list(edges), set(up)
    lines = {(a, b): np.array([at[a], at[b]]) for a, b in edges}
    crossing = {edge: passed for edge in edges if (passed := _passed(at, *edge))}
    arcs = [(a, b) for a, b in crossing if in_rows and at[a][1] == at[b][1]]
    ports = _ports(at, arcs)
    for a, b in crossing:
        if (a, b) in ports:
            depth = DEPTH + DEEPER * (crossing[a, b] - 1)
            lines[a, b] = _arc(at[a], at[b], ports[a, b], depth if a in above else -depth)
        else:
            (x, y), (u, v) = at[a], at[b]
            length = float(np.hypot(u - x, v - y))
            aside = ASIDE if (x, -y) < (u, -v) else -ASIDE
            lines[a, b] = bend_line(lines[a, b], (-aside * (v - y) / length, aside * (u - x) / length))
    return lines


def _passed(at: Mapping[str, Point], a: str, b: str) -> int:
    """Return the number of other nodes that a straight line between two nodes would cross."""
    nodes = np.array([place for node, place in at.items() if node not in (a, b)])
    if not len(nodes):
        return 0
    start, along = np.array(at[a]), np.array(at[b]) - at[a]
    share = np.clip((nodes - start) @ along / max(float(along @ along), 1e-12), 0, 1)
    apart = np.hypot(*(nodes - start - share[:, None] * along).T)
    return int(np.count_nonzero(apart < CLEARANCE))


def _ports(at: Mapping[str, Point], arcs: Iterable[Edge]) -> dict[Edge, tuple[float, float]]:
    """Return the horizontal shift of each arc's two ends, in inches. Shifted arcs do not cross."""
    ends: dict[str, list[tuple[bool, float, Edge]]] = defaultdict(list)
    for a, b in arcs:
        length = at[b][0] - at[a][0]
        ends[a].append((length > 0, -abs(length) if length > 0 else abs(length), (a, b)))
        ends[b].append((length < 0, -abs(length) if length < 0 else abs(length), (a, b)))
    offsets: dict[tuple[str, Edge], float] = {}
    for node, node_ends in ends.items():
        for number, (_, _, edge) in enumerate(sorted(node_ends)):
            offsets[node, edge] = PORT * (number - (len(node_ends) - 1) / 2)
    return {(a, b): (offsets[a, (a, b)], offsets[b, (a, b)]) for a, b in arcs}


def _arc(start: Point, end: Point, ports: tuple[float, float], height: float) -> Line:
    """Return half an ellipse between two nodes of a row. If ``height`` is negative, the arc is below the row."""
    x, u = start[0] + ports[0], end[0] + ports[1]
    angle = np.linspace(np.pi, 0.0, 33)
    return np.stack([(x + u) / 2 + (u - x) / 2 * np.cos(angle), start[1] + height * np.sin(angle)], axis=1)
