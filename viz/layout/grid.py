"""The hosts of a torus in rows and columns, the planes of a third dimension one behind the other; the cables back round
are drawn as arcs."""

from collections.abc import Iterator

import numpy as np

from viz.layout.geometry import (
    Box,
    Edge,
    Graph,
    Layout,
    Line,
    Point,
    bent,
    fitted,
    fitting_radius,
    lane_between,
    natural,
)

ARC = 0.36  # of the way to the next row or column
HIGHEST = 26.0  # pixels of an arc
BEHIND = 0.27  # of a column to the right and of a row up, from one plane to the next

Shape = tuple[int, int, int]  # planes, rows and columns
Seat = tuple[int, int, int]


def on_grid(graph: Graph, hosts: tuple[str, ...], box: Box) -> Layout | None:
    """A torus row by row, the first on top; None for any other network."""
    nodes = sorted(graph, key=natural)
    shape = _shape(graph, nodes)
    if shape is None or set(nodes) != set(hosts):
        return None
    seats = dict(zip(nodes, _seats(shape), strict=True))
    at = {node: (x + BEHIND * z, BEHIND * z - y) for node, (z, y, x) in seats.items()}
    places = fitted(at, Box(box.left, box.bottom, box.right - HIGHEST, box.top - HIGHEST))
    radius = fitting_radius(list(places.values()))
    radii = dict.fromkeys(nodes, radius)
    cell = _cell(places, at)
    lanes = {(a, b): _lane(places, seats, a, b, radii, cell) for a, b in graph.edges}
    return Layout(places, hosts, radii, lanes)


def _shape(graph: Graph, nodes: list[str]) -> Shape | None:
    """How many planes, rows and columns the torus has; None if this is none. A ring of four is a ring."""
    edges = set(graph.edges)
    return next((shape for shape in _shapes(len(nodes)) if _torus_edges(nodes, shape) == edges), None)


def _shapes(size: int) -> Iterator[Shape]:
    """All with two dimensions, then all with three; each dimension has two or more, and all together more than four."""
    for planes in (planes for planes in range(1, size // 4 + 1) if size % planes == 0 and size > 4):
        plane = size // planes
        yield from ((planes, plane // width, width) for width in range(2, plane // 2 + 1) if plane % width == 0)


def _seats(shape: Shape) -> list[Seat]:
    return [(int(z), int(y), int(x)) for z, y, x in np.ndindex(shape)]


def _torus_edges(nodes: list[str], shape: Shape) -> set[Edge]:
    """Of every host to the next and to the last one along each dimension that has several."""
    at = np.arange(len(nodes)).reshape(shape)
    ways = [np.roll(at, step, axis).ravel() for axis in range(3) if shape[axis] > 1 for step in (1, -1)]
    return {(node, nodes[way[index]]) for way in ways for index, node in enumerate(nodes)}


def _cell(places: dict[str, Point], at: dict[str, Point]) -> Point:
    """Pixels from one column to the next and from one row to the next."""
    (x, y), (u, v) = np.ptp(list(places.values()), axis=0), np.ptp(list(at.values()), axis=0)
    return float(x / u), float(y / v)


def _lane(
    places: dict[str, Point], seats: dict[str, Seat], a: str, b: str, radii: dict[str, float], cell: Point
) -> Line:
    """Straight to a neighbour; from one end of a row, a column or the planes to the other an arc past those between."""
    lane = lane_between(places, a, b, radii)
    steps = np.subtract(seats[b], seats[a])
    if abs(steps).max() == 1:
        return lane
    aside = 1.0 if seats[a] < seats[b] else 0.8  # the two ways apart
    over, beside = aside * min(HIGHEST, ARC * cell[1]), aside * min(HIGHEST, ARC * cell[0])
    return bent(lane, (0.0, over) if steps[2] else (beside, 0.0) if steps[1] else (beside / 2, -over / 2))
