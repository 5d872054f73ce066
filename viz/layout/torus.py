"""The layout of a torus: hosts in rows and columns, the planes of a third dimension one behind the other, and the links
from each end back to the beginning as arcs."""

from collections.abc import Iterator

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
)

ARC_SHARE = 0.36  # height of an arc as a share of the distance between rows or columns
HIGHEST = 26.0  # pixels of an arc
BEHIND = 0.27  # of a column to the right and of a row up, from one plane to the next

Shape = tuple[int, int, int]  # planes, rows and columns
Seat = tuple[int, int, int]  # plane, row and column of a host


def lay_out_torus(graph: Graph, hosts: tuple[str, ...], box: Box) -> Layout | None:
    """Return the layout of a torus, row by row with the first on top; None for any other network."""
    nodes = sorted(graph, key=natural_order)
    shape = _find_shape(graph, nodes)
    if shape is None or set(nodes) != set(hosts):
        return None
    seats = dict(zip(nodes, _seats(shape), strict=True))
    at = {node: (x + BEHIND * z, BEHIND * z - y) for node, (z, y, x) in seats.items()}
    positions = fit_into(Box(box.left, box.bottom, box.right - HIGHEST, box.top - HIGHEST), at)
    radius = fitting_radius(list(positions.values()))
    radii = dict.fromkeys(nodes, radius)
    cell = _cell_size(positions, at)
    lines = {(a, b): _torus_line(positions, seats, a, b, radii, cell) for a, b in graph.edges}
    return Layout(positions, hosts, radii, lines)


def torus_seats(graph: Graph) -> dict[str, Point]:
    """Return the place of each host of a torus in a unit box with y downwards; nothing for another network."""
    nodes = sorted(graph, key=natural_order)
    shape = _find_shape(graph, nodes)
    if shape is None:
        return {}
    at = {node: (x + BEHIND * z, y - BEHIND * z) for node, (z, y, x) in zip(nodes, _seats(shape), strict=True)}
    return fit_into(Box(0.0, 0.0, 1.0, 1.0), at)


def _find_shape(graph: Graph, nodes: list[str]) -> Shape | None:
    """Return how many planes, rows and columns the torus has; None if it is none. A ring of four is not a torus."""
    edges = set(graph.edges)
    return next((shape for shape in _shapes(len(nodes)) if _torus_edges(nodes, shape) == edges), None)


def _shapes(size: int) -> Iterator[Shape]:
    """Yield the shapes of two dimensions, then those of three, that have ``size`` hosts, more than four in all."""
    for planes in (planes for planes in range(1, size // 4 + 1) if size % planes == 0 and size > 4):
        plane = size // planes
        yield from ((planes, plane // width, width) for width in range(2, plane // 2 + 1) if plane % width == 0)


def _seats(shape: Shape) -> list[Seat]:
    return [(int(z), int(y), int(x)) for z, y, x in np.ndindex(shape)]


def _torus_edges(nodes: list[str], shape: Shape) -> set[Edge]:
    """Return the edges from every host to the next and to the last one along each dimension that has several."""
    at = np.arange(len(nodes)).reshape(shape)
    neighbours = [np.roll(at, step, axis).ravel() for axis in range(3) if shape[axis] > 1 for step in (1, -1)]
    return {(node, nodes[peers[index]]) for peers in neighbours for index, node in enumerate(nodes)}


def _cell_size(positions: dict[str, Point], at: dict[str, Point]) -> Point:
    """Return the pixels from one column to the next and from one row to the next."""
    (x, y), (u, v) = np.ptp(list(positions.values()), axis=0), np.ptp(list(at.values()), axis=0)
    return float(x / u), float(y / v)


def _torus_line(
    positions: dict[str, Point], seats: dict[str, Seat], a: str, b: str, radii: dict[str, float], cell: Point
) -> Line:
    """Return a straight line to a neighbour; from one end of a row, a column or the planes to the other an arc."""
    line = line_between(positions, a, b, radii)
    steps = np.subtract(seats[b], seats[a])
    if abs(steps).max() == 1:
        return line
    aside = 1.0 if seats[a] < seats[b] else 0.8  # keeps the two directions apart
    over, beside = aside * min(HIGHEST, ARC_SHARE * cell[1]), aside * min(HIGHEST, ARC_SHARE * cell[0])
    return bend_line(line, (0.0, over) if steps[2] else (beside, 0.0) if steps[1] else (beside / 2, -over / 2))
