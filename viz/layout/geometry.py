"""Points, lines and boxes of a picture, in pixels with y upwards, and what a layout is made of."""

import re
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

import networkx as nx
import numpy as np
import numpy.typing as npt

Graph: TypeAlias = "nx.DiGraph[str]"
Point = tuple[float, float]
Edge = tuple[str, str]
Line = npt.NDArray[np.float64]  # [points, 2]

LARGEST_HOST = 22.0


@dataclass(frozen=True)
class Box:
    """An area of the picture."""

    left: float
    bottom: float
    right: float
    top: float

    @property
    def middle(self) -> Point:
        return self.at(0.5, 0.5)

    def at(self, x: float, y: float) -> Point:
        """The point at shares ``x`` and ``y`` of width and height."""
        return self.left + x * (self.right - self.left), self.bottom + y * (self.top - self.bottom)


@dataclass(frozen=True)
class Layout:
    """Places of nodes, how large each is drawn, and the lane of each direction of a link."""

    places: dict[str, Point]
    hosts: tuple[str, ...]  # node of each rank
    radii: dict[str, float]  # of each node's symbol
    lanes: dict[Edge, Line]
    memory: Box | None = None  # the box that stands for the two ends of this machine's memory
    kinds: dict[str, str] = field(default_factory=dict)  # of the parts of machines, such as nic; others are switches

    @property
    def radius(self) -> float:
        """Of a host."""
        return self.radii[self.hosts[0]]

    def path(self, src: int, dst: int, route: tuple[str, ...]) -> Line:
        """The line from rank ``src`` to ``dst`` along ``route``; straight where that is empty."""
        if self.memory and len(route) == 4:
            return self._memory_path(self.memory, *route)
        nodes = route if len(route) > 1 else (self.hosts[src], self.hosts[dst])
        return np.concatenate([self._link(a, b) for a, b in pairwise(nodes)])

    def _link(self, a: str, b: str) -> Line:
        return self.lanes[a, b] if (a, b) in self.lanes else lane_between(self.places, a, b, self.radii)

    def _memory_path(self, memory: Box, src: str, into: str, out: str, dst: str) -> Line:
        down, up, middle = self.lanes[src, into], self.lanes[out, dst], memory.middle[1]
        return np.array([down[0], (down[1][0], middle), (up[0][0], middle), up[1]])


def natural(name: str) -> list[tuple[int, str]]:
    """Sort key with h2 before h10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def fitted(places: dict[str, Point], box: Box) -> dict[str, Point]:
    """Stretched to fill the box in each direction in which they differ, and centred."""
    points = np.array(list(places.values()))
    low, high = points.min(axis=0), points.max(axis=0)
    spread = np.where(high - low > 1e-6, high - low, np.inf)
    return {node: box.at(*(0.5 + (np.array(place) - (low + high) / 2) / spread)) for node, place in places.items()}


def nearest(points: list[Point]) -> float:
    """The distance of the two that are closest; infinite for fewer than two."""
    at = np.array(points)
    apart = np.hypot(*(at[:, None] - at[None]).transpose(2, 0, 1))
    return float((apart + np.diag(np.full(len(at), np.inf))).min())


def nearest_of_each(places: dict[str, Point]) -> dict[str, float]:
    """Of each node the distance to the one that is closest; infinite where there is no other."""
    at = np.array(list(places.values()))
    apart = np.hypot(*(at[:, None] - at[None]).transpose(2, 0, 1)) + np.diag(np.full(len(at), np.inf))
    return dict(zip(places, apart.min(axis=1).tolist(), strict=True))


def fitting_radius(places: list[Point]) -> float:
    """As large as leaves a gap to the nearest neighbour, within limits."""
    return min(LARGEST_HOST, max(2.5, 0.34 * nearest(places)))


def bent(lane: Line, by: Point) -> Line:
    """A lane as a curve whose middle has moved by ``by``; a quadratic Bezier curve in nine points."""
    start, end = lane[0], lane[-1]
    turn = (start + end) / 2 + 2 * np.array(by)
    at = np.linspace(0.0, 1.0, 9)[:, None]
    return np.asarray((1 - at) ** 2 * start + 2 * at * (1 - at) * turn + at**2 * end, dtype=np.float64)


def lane_between(places: dict[str, Point], a: str, b: str, radii: dict[str, float]) -> Line:
    """From a to b, kept to the right as on a road, from where one symbol ends to where the other begins."""
    start, end = np.array(places[a]), np.array(places[b])
    length = float(np.hypot(*(end - start))) or 1.0
    along = (end - start) / length
    aside = np.array([along[1], -along[0]]) * min(4.5, 0.3 * min(radii[a], radii[b]))
    near, far = (min(radii[node], length / 3) for node in (a, b))
    return np.array([start + along * near + aside, end - along * far + aside])
