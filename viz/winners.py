"""The map of winners: which algorithm is fastest for each buffer size and number of ranks, and by how much."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log2, sqrt

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from collectives.units import format_size
from viz.style import DPI, FAINT, GREY, INK, PAPER, chunk_colours, text_colour

STRONG = 2.0  # times as fast as the next best, from which on a colour is full
PALEST = 0.28  # how much of it is left where two are equally fast
LEGEND_COLUMNS = 4
Colour = tuple[float, float, float]


@dataclass(frozen=True)
class Winners:
    """The winners and their gains: a row for each world size, a column for each size in bytes.

    A gain is how many times as fast the winner is as the next best.
    """

    title: str
    sizes: Sequence[int]
    world_sizes: Sequence[int]
    names: Sequence[Sequence[str]]
    gains: Sequence[Sequence[float]]


def winners_figure(found: Winners) -> Figure:
    """Return the map as a figure.

    >>> found = Winners("all_reduce", [1024, 4096], [2], names=[["naive", "ring"]], gains=[[2.0, 1.1]])
    >>> len(winners_figure(found).axes[0].images)
    1
    """
    figure = Figure(figsize=(9.6, 6.0), dpi=DPI, facecolor=PAPER)
    axes = figure.add_axes((0.075, 0.22, 0.9, 0.65))
    colours = winner_colours(found)
    axes.imshow(_cell_colours(found, colours), origin="lower", aspect="auto", interpolation="nearest")
    _draw_borders(axes, found)
    _draw_ticks(axes, found)
    for name, cells in _regions(found):
        _draw_label(axes, found, name, cells, colours[name])
    figure.text(0.075, 0.93, found.title, fontsize=13, fontweight="bold", color=INK, parse_math=False)
    figure.text(
        0.075, 0.89, "fastest algorithm by the model; the paler, the closer the next best", fontsize=9.5, color=GREY
    )
    _draw_legend(figure, found, colours)
    return figure


def winner_colours(found: Winners) -> dict[str, str]:
    """Return a colour for each algorithm that wins somewhere, those that win most often first."""
    flat = [name for row in found.names for name in row]
    often = sorted(dict.fromkeys(flat), key=lambda name: -flat.count(name))
    return dict(zip(often, chunk_colours(len(often)), strict=True))


def _cell_colours(found: Winners, colours: dict[str, str]) -> npt.NDArray[np.float64]:
    rows = zip(found.names, found.gains, strict=True)
    return np.array(
        [[shade_by_gain(colours[name], gain) for name, gain in zip(*row, strict=True)] for row in rows],
        dtype=np.float64,
    )


def shade_by_gain(colour: str, gain: float) -> Colour:
    """Return red, green and blue of ``colour``, paler for a smaller ``gain``; full from a gain of 2 on."""
    share = PALEST + (1 - PALEST) * min(1.0, max(0.0, log2(max(gain, 1.0)) / log2(STRONG)))
    red, green, blue = (1 - share + share * part for part in to_rgb(colour))
    return red, green, blue


def _draw_borders(axes: Axes, found: Winners) -> None:
    """Draw a line between neighbouring cells with different winners."""
    names = found.names
    for row in range(len(names)):
        for column in range(len(names[0])):
            if column and names[row][column] != names[row][column - 1]:
                axes.plot([column - 0.5] * 2, [row - 0.5, row + 0.5], color=PAPER, linewidth=2.2)
            if row and names[row][column] != names[row - 1][column]:
                axes.plot([column - 0.5, column + 0.5], [row - 0.5] * 2, color=PAPER, linewidth=2.2)


def _draw_ticks(axes: Axes, found: Winners) -> None:
    every = max(1, round(len(found.sizes) / 10))
    at = range(0, len(found.sizes), every)
    axes.set_xticks(list(at), [format_size(found.sizes[k]) for k in at])
    axes.set_yticks(range(len(found.world_sizes)), [str(p) for p in found.world_sizes])
    axes.set_xlabel("size of the whole buffer", color=INK, fontsize=10)
    axes.set_ylabel("ranks", color=INK, fontsize=10)
    axes.tick_params(length=0, labelsize=9, labelcolor=GREY)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _regions(found: Winners) -> list[tuple[str, list[tuple[int, int]]]]:
    """Return the connected regions of one winner, each its name and cells (row, column), the largest first."""
    rows, columns = len(found.names), len(found.names[0])
    left = {(row, column) for row in range(rows) for column in range(columns)}
    regions = []
    while left:
        start = min(left)
        name, region, edge = found.names[start[0]][start[1]], [start], [start]
        left.remove(start)
        while edge:
            row, column = edge.pop()
            for near in ((row + 1, column), (row - 1, column), (row, column + 1), (row, column - 1)):
                if near in left and found.names[near[0]][near[1]] == name:
                    left.remove(near)
                    edge.append(near)
                    region.append(near)
        regions.append((name, region))
    return sorted(regions, key=lambda region: -len(region[1]))


def _draw_label(axes: Axes, found: Winners, name: str, cells: list[tuple[int, int]], colour: str) -> None:
    """Write the name into the widest run of a region, if it fits."""
    own = set(cells)
    runs = [_run(own, row, column) for row, column in cells if (row, column - 1) not in own]
    first, last = max(runs, key=lambda run: run[1] - run[0][1] + 0.8 * _beside(own, *run))
    per_cell = 8.6 * 72 / len(found.sizes)  # points
    size = min(10.0, per_cell * (last - first[1] + 1) / (0.62 * len(name) + 1))
    if size < 5.5:
        return
    shown = shade_by_gain(colour, found.gains[first[0]][(first[1] + last) // 2])
    paper = to_hex(shown)
    text = axes.text(
        (first[1] + last) / 2, first[0], name.replace("_", " "), fontsize=size, ha="center", va="center",
        color=text_colour(paper), parse_math=False,
    )  # fmt: skip
    text.set_path_effects([withStroke(linewidth=1.6, foreground=paper)])


def _beside(own: set[tuple[int, int]], first: tuple[int, int], last: int) -> int:
    """Return how many of the four cells above and below the ends of a run belong to the region too."""
    return sum((first[0] + up, column) in own for up in (-1, 1) for column in (first[1], last))


def _run(own: set[tuple[int, int]], row: int, column: int) -> tuple[tuple[int, int], int]:
    """Return the run of a region's cells from this one to the right: its first cell, and its last column."""
    last = column
    while (row, last + 1) in own:
        last += 1
    return (row, column), last


def _draw_legend(figure: Figure, found: Winners, colours: dict[str, str]) -> None:
    """Draw the colours with their names, and the scale of gains."""
    for number, (name, colour) in enumerate(colours.items()):
        x, y = 0.075 + 0.175 * (number % LEGEND_COLUMNS), 0.1 - 0.04 * (number // LEGEND_COLUMNS)
        figure.text(x, y, "■", fontsize=13, color=colour, va="center")
        figure.text(x + 0.022, y, name.replace("_", " "), fontsize=8.5, color=INK, va="center", parse_math=False)
    scale = figure.add_axes((0.79, 0.075, 0.14, 0.022))
    grey = [[shade_by_gain(INK, STRONG ** (k / 20)) for k in range(21)]]
    scale.imshow(np.array(grey), aspect="auto", extent=(0, 1, 0, 1))
    scale.set_xticks([0, 0.5, 1], ["1", f"{sqrt(STRONG):.2g}", f"{STRONG:.2g} or more"])
    scale.set_yticks([])
    scale.tick_params(length=0, labelsize=8, labelcolor=GREY)
    scale.set_title("times as fast as the next best", fontsize=8, color=GREY, loc="left", pad=4)
    for spine in scale.spines.values():
        spine.set_edgecolor(FAINT)
