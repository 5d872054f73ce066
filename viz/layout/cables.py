"""The lines of links in a still picture: straight, or round the nodes that they would cross; lengths in inches."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

import numpy as np

from viz.layout.geometry import Edge, Line, Point, bend_line

CLEARANCE = 0.17  # inches between a straight line and the middle of another node
DEPTH, DEEPER = 0.22, 0.17  # inches of an arc over one node, and more for each further one
PORT = 0.05  # inches between two arcs at a node
ASIDE = 0.3  # inches by which a line that is not in a row goes round others


def draw_lines(at: Mapping[str, Point], edges: Iterable[Edge], *, up: Iterable[str], in_rows: bool) -> dict[Edge, Line]:
    """Return a line for each edge. In rows, arcs along a row go below it, or above it at the nodes in ``up``.

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
    """Return how many other nodes a straight line would cross."""
    nodes = np.array([place for node, place in at.items() if node not in (a, b)])
    if not len(nodes):
        return 0
    start, along = np.array(at[a]), np.array(at[b]) - at[a]
    share = np.clip((nodes - start) @ along / max(float(along @ along), 1e-12), 0, 1)
    apart = np.hypot(*(nodes - start - share[:, None] * along).T)
    return int(np.count_nonzero(apart < CLEARANCE))


def _ports(at: Mapping[str, Point], arcs: Iterable[Edge]) -> dict[Edge, tuple[float, float]]:
    """Return how far from the middles of their nodes arcs begin and end, so that they nest and do not run together."""
    ends: dict[str, list[tuple[bool, float, Edge]]] = defaultdict(list)
    for a, b in arcs:
        length = at[b][0] - at[a][0]
        ends[a].append((length > 0, -abs(length) if length > 0 else abs(length), (a, b)))
        ends[b].append((length < 0, -abs(length) if length < 0 else abs(length), (a, b)))
    found: dict[tuple[str, Edge], float] = {}
    for node, own in ends.items():
        for number, (_, _, edge) in enumerate(sorted(own)):
            found[node, edge] = PORT * (number - (len(own) - 1) / 2)
    return {(a, b): (found[a, (a, b)], found[b, (a, b)]) for a, b in arcs}


def _arc(start: Point, end: Point, ports: tuple[float, float], height: float) -> Line:
    """Return half an ellipse from one node of a row to another, below the row where ``height`` is negative."""
    x, u = start[0] + ports[0], end[0] + ports[1]
    angle = np.linspace(np.pi, 0.0, 33)
    return np.stack([(x + u) / 2 + (u - x) / 2 * np.cos(angle), start[1] + height * np.sin(angle)], axis=1)
