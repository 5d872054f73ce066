"""The hosts of a two-dimensional torus in rows and columns; the cables back round are drawn as arcs."""

import numpy as np

from viz.geometry import Box, Edge, Graph, Layout, Line, Point, bent, fitted, fitting_radius, lane_between, natural

ARC = 0.36  # of the way to the next row or column
HIGHEST = 26.0  # pixels of an arc


def on_grid(graph: Graph, hosts: tuple[str, ...], box: Box) -> Layout | None:
    """A torus row by row, the first on top; None for any other network."""
    nodes = sorted(graph, key=natural)
    width = _columns(graph, nodes)
    if width is None or set(nodes) != set(hosts):
        return None
    at = {node: (float(index % width), float(-(index // width))) for index, node in enumerate(nodes)}
    places = fitted(at, Box(box.left, box.bottom, box.right - HIGHEST, box.top - HIGHEST))
    radius = fitting_radius(list(places.values()))
    radii = dict.fromkeys(nodes, radius)
    cell = _cell(places, at)
    lanes = {(a, b): _lane(places, at, a, b, radii, cell) for a, b in graph.edges}
    return Layout(places, hosts, radii, lanes)


def _columns(graph: Graph, nodes: list[str]) -> int | None:
    """How many hosts a row of the torus has; None if this is none. A ring of four is a ring."""
    edges = set(graph.edges)
    widths = (width for width in range(2, len(nodes) // 2 + 1) if len(nodes) % width == 0 and len(nodes) > 4)
    return next((width for width in widths if _torus_edges(nodes, width) == edges), None)


def _torus_edges(nodes: list[str], width: int) -> set[Edge]:
    height = len(nodes) // width
    edges = set()
    for index, node in enumerate(nodes):
        y, x = divmod(index, width)
        for step in (1, -1):
            edges |= {(node, nodes[y * width + (x + step) % width]), (node, nodes[(y + step) % height * width + x])}
    return edges


def _cell(places: dict[str, Point], at: dict[str, Point]) -> Point:
    """Pixels from one column to the next and from one row to the next."""
    (x, y), (u, v) = np.ptp(list(places.values()), axis=0), np.ptp(list(at.values()), axis=0)
    return float(x / u), float(y / v)


def _lane(places: dict[str, Point], at: dict[str, Point], a: str, b: str, radii: dict[str, float], cell: Point) -> Line:
    """Straight to a neighbour; an arc over the row, or beside the column, from its one end to the other."""
    lane = lane_between(places, a, b, radii)
    (x, y), (u, v) = at[a], at[b]
    aside = 1.0 if (x, y) < (u, v) else 0.8  # the two ways apart
    if abs(u - x) > 1:
        return bent(lane, (0.0, aside * min(HIGHEST, ARC * cell[1])))
    return bent(lane, (aside * min(HIGHEST, ARC * cell[0]), 0.0)) if abs(v - y) > 1 else lane
