"""Draw NCCL's rings and trees over GPUs, one panel for each, with the GPUs of a node in a circle."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, cos, hypot, pi, sin, sqrt

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch

from collectives.errors import InputError
from viz.style import DPI, FAINT, GREY, INK, PANE, PAPER, chunk_colors, fit_words

RADIUS = 1.0  # radius of a node's circle of GPUs
GAP = 3.1  # between the centers of nodes
PANEL, NODE = 2.6, 1.7  # in inches: least width of a panel, and width of a node
Pair = tuple[int, int]


@dataclass(frozen=True)
class Rings:
    """NCCL's rings as orders of ranks, and its trees as (rank, parent) pairs. Ranks are numbered by node."""

    title: str
    ranks_per_node: int
    rings: Sequence[Sequence[int]]
    trees: Sequence[Sequence[Pair]] = ()


def rings_figure(rings: Rings) -> Figure:
    """Return rings and trees as a figure, one panel each. Raise InputError unless there are 1 to 256 ranks.

    >>> len(rings_figure(Rings("two nodes", 2, [[0, 1, 2, 3]], [[(1, 0), (2, 0), (3, 2)]])).axes)
    2
    """
    ranks = max((len(ring) for ring in rings.rings), default=0)
    if not 0 < ranks <= 256:  # more would be dots
        raise InputError(f"{rings.title}: rings can be drawn for 1 to 256 ranks, not {ranks}")
    panels, nodes = list_panels(rings), ceil(ranks / rings.ranks_per_node)
    across = min(nodes, max(1, round(sqrt(nodes) * 1.3)))
    columns = min(len(panels), 3 if across < 3 else 2 if across < 5 else 1)
    rows, width = ceil(len(panels) / columns), max(PANEL, NODE * across)
    height = NODE * ceil(nodes / across) + 0.4
    figure = Figure(figsize=(columns * width + 0.4, rows * height + 0.7), dpi=DPI, facecolor=PAPER)
    figure.suptitle(rings.title, x=0.02, ha="left", fontsize=12, fontweight="bold", color=INK, parse_math=False)
    to = " and to a tree's parent" if rings.trees else ""
    key = f"arrows: to the next rank of a ring{to}{'; dashed: between nodes' if nodes > 1 else ''}"
    figure.text(0.02, 0.01, fit_words(key, columns * width, 8), fontsize=8, color=GREY)
    places = _places(ranks, rings.ranks_per_node, across)
    colors = chunk_colors(max(len(panels), 2))
    for number, (name, arrows) in enumerate(panels):
        axes = figure.add_subplot(rows, columns, number + 1)
        _draw_panel(axes, places, rings.ranks_per_node, across)
        _draw_arrows(axes, arrows, places, colors[number], rings.ranks_per_node)
        axes.set_title(name, fontsize=9.5, color=GREY)
    figure.tight_layout(rect=(0, 0.05, 1, 0.95))
    return figure


def list_panels(rings: Rings) -> list[tuple[str, list[Pair]]]:
    """Return the name and arrows of each panel, as pairs of ranks. A ring and its reverse share a panel.

    >>> [name for name, _ in list_panels(Rings("", 3, [[0, 1, 2], [0, 2, 1]], [[(1, 0), (2, 1)]]))]
    ['ring 0, and back as ring 1', 'tree 0']
    """
    panels: list[tuple[str, list[Pair]]] = []
    numbers: dict[frozenset[Pair], int] = {}
    for number, ring in enumerate(rings.rings):
        arrows = list(zip(ring, [*ring[1:], ring[0]], strict=True)) if len(ring) > 1 else []
        back = numbers.get(frozenset((b, a) for a, b in arrows))
        numbers[frozenset(arrows)] = len(panels)
        if back is None or len(ring) < 3:
            panels.append((f"ring {number}", arrows))
        else:
            panels[back] = (f"{panels[back][0]}, and back as ring {number}", panels[back][1])
    panels += [(f"tree {number}", list(tree)) for number, tree in enumerate(rings.trees)]
    return panels[:9]


def _center(node: int, across: int) -> tuple[float, float]:
    return GAP * (node % across), -GAP * (node // across)


def _places(ranks: int, per_node: int, across: int) -> list[tuple[float, float]]:
    """Return the position of each rank: clockwise from the top around the center of its node."""
    places = []
    for rank in range(ranks):
        x, y = _center(rank // per_node, across)
        angle, radius = pi / 2 - 2 * pi * (rank % per_node) / per_node, RADIUS if per_node > 1 else 0.0
        places.append((x + radius * cos(angle), y + radius * sin(angle)))
    return places


def _size(per_node: int) -> float:
    """Return the radius of a rank's circle."""
    return min(0.26, 2.2 / max(per_node, 4))


def _draw_panel(axes: Axes, places: list[tuple[float, float]], per_node: int, across: int) -> None:
    size = _size(per_node)
    for node in range(ceil(len(places) / per_node)):
        axes.add_patch(Circle(_center(node, across), RADIUS + 0.38, facecolor=PANE, edgecolor=FAINT, zorder=0))
    for rank, place in enumerate(places):
        axes.add_patch(Circle(place, size, facecolor=PAPER, edgecolor=INK, linewidth=0.8, zorder=3))
        if size > 0.12:
            axes.text(*place, str(rank), ha="center", va="center", fontsize=22 * size + 1.5, color=INK, zorder=4)
    axes.set_aspect("equal")
    axes.autoscale_view()
    axes.axis("off")


def _draw_arrows(
    axes: Axes, arrows: Sequence[Pair], places: list[tuple[float, float]], color: str, per_node: int
) -> None:
    for a, b in arrows:
        inside = a // per_node == b // per_node
        (ax, ay), (bx, by) = places[a], places[b]
        share = _size(per_node) / max(hypot(bx - ax, by - ay), 1e-9)
        dx, dy = share * (bx - ax), share * (by - ay)
        arrow = FancyArrowPatch(
            (ax + dx, ay + dy), (bx - dx, by - dy), arrowstyle="-|>", mutation_scale=8, shrinkA=0.5, shrinkB=1.5,
            color=color, linewidth=1.4 if inside else 1.8, linestyle="-" if inside else (0, (4, 2)),
            connectionstyle="arc3,rad=0.12", zorder=2,
        )  # fmt: skip
        axes.add_patch(arrow)
