"""Plot training throughput against ranks, and predicted times against the values of a sweep."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from collectives.checks import check_text
from collectives.errors import InputError
from collectives.units import format_time
from viz.style import GREY, INK, chunk_colors, clear_axes, log_ticks, titled_figure

IDEAL = "ideal"
APART, LOWEST = 0.1, 0.02  # distance between two labels, and the lowest label, as fractions of the height
CLOSE = 1.25  # ratio of the highest rate to the lowest
SAME = 0.99  # ratio of rates up to which they share one ideal line
Points = tuple[tuple[int, float, float], ...]  # ranks, samples a second, share of the ideal
End = tuple[float, str, str]  # height, words, color


@dataclass(frozen=True)
class Curve:
    """The throughput (samples/s) and scaling efficiency of a training run at each number of ranks.

    If a run hangs, its throughput and efficiency are None.
    """

    name: str
    world_sizes: Sequence[int]
    samples_per_s: Sequence[float | None]
    efficiency: Sequence[float | None]


def scaling_figure(title: str, subtitle: str, curves: Sequence[Curve]) -> Figure:
    """Return a figure of throughput against the number of ranks, with a dashed line for perfect scaling.

    If the curves almost coincide, the figure shows throughput per rank instead, which makes their differences visible.
    The matplotlib line of perfect scaling has the ``gid`` "ideal". Raise InputError if there are no points or more than
    nine curves.

    >>> [line.get_gid() for line in scaling_figure("star", "", [Curve("ring", [2], [60.0], [0.9])]).axes[0].lines]
    ['ideal', 'ring']
    """
    points = _by_points(curves)
    if not points or len(curves) > 9:
        raise InputError(
            f"a scaling figure needs 1 to 9 curves with points, not {len(curves)} with {sum(map(len, points))} points"
        )
    figure = titled_figure(title, subtitle, 9.0, 5.6)
    axes = figure.add_axes((0.095, 0.11, 0.68, 0.74))
    ranks, is_each = sorted({ranks for curve in points for ranks, _, _ in curve}), _are_close(points)
    axes.set(xscale="log", yscale="linear" if is_each else "log")
    ends = _draw_lines(axes, points, ranks, is_each)
    axes.xaxis.set_major_locator(FixedLocator(_spaced(ranks)))
    axes.yaxis.set_major_locator(MaxNLocator(6) if is_each else log_ticks(*axes.get_ylim()))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(
            FuncFormatter(lambda number, _: f"{number:,.4g}" if number < 1e4 else f"{number:,.0f}")
        )
    axes.set_xlabel("number of ranks", color=INK, fontsize=10)
    axes.set_ylabel(f"throughput of {'each rank' if is_each else 'all ranks'} (samples/s)", color=INK, fontsize=10)
    clear_axes(axes, keep="both")
    low, high = axes.get_ylim()
    to_scale: Callable[[float], float] = float if is_each else log
    heights = [(to_scale(end[0]) - to_scale(low)) / (to_scale(high) - to_scale(low)) for end in ends]
    for (_, words, color), height in zip(ends, _apart(heights), strict=True):
        axes.text(
            1.02, height, words, transform=axes.transAxes, fontsize=9, color=color, va="center", parse_math=False,
            fontweight="normal" if words.startswith(IDEAL) and "\n" not in words else "bold",
        )  # fmt: skip
    return figure


def _draw_lines(axes: Axes, points: Mapping[Points, str], ranks: Sequence[int], is_each: bool) -> list[End]:
    """Draw the curves and the ideal line. Return the height, label and color of each line's right end."""
    one_rank, ideal = _ideal(points)
    across = ranks if len(ranks) > 1 else [ranks[0] / 2, ranks[0] * 2]  # for one number, a level line on both sides
    of = ranks if len(ranks) > 1 else [ranks[0]] * 2
    heights = [one_rank * (1 if is_each else count) for count in of]
    axes.plot(across, heights, "--", color=GREY, linewidth=1.2, gid=IDEAL)
    ends = [(heights[-1], ideal, GREY)]
    for (curve, name), color in zip(points.items(), chunk_colors(len(points)), strict=True):
        rates = [rate / (count if is_each else 1) for count, rate, _ in curve]
        counts = [count for count, _, _ in curve]
        axes.plot(counts, rates, "o-", color=color, linewidth=2, markersize=4.5, gid=name, clip_on=False)
        ends.append((rates[-1], f"{name}\n{curve[-1][2]:.0%} at {counts[-1]}", color))
    return ends


def _are_close(points: Mapping[Points, str]) -> bool:
    """Return whether two or more curves would almost coincide in a figure of total throughput."""
    rates: dict[int, list[float]] = {}
    for curve in points:
        for count, rate, _ in curve:
            rates.setdefault(count, []).append(rate)
    return len(points) > 1 and all(max(each) <= CLOSE * min(each) for each in rates.values())


def _by_points(curves: Sequence[Curve]) -> dict[Points, str]:
    """Return a dict that maps a curve's points to the curve's name. Runs that hang are omitted.

    A point is a tuple (ranks, samples/s, efficiency). If curves have the same points, their names are joined.
    """
    names_by_points: dict[Points, list[str]] = {}
    for curve in curves:
        rows = zip(curve.world_sizes, curve.samples_per_s, curve.efficiency, strict=True)
        if points := tuple((ranks, rate, share) for ranks, rate, share in rows if rate and share):
            names_by_points.setdefault(points, []).append(curve.name)
    return {points: ", ".join(names) for points, names in names_by_points.items()}


def _ideal(points: Mapping[Points, str]) -> tuple[float, str]:
    """Return the highest one-rank throughput and the label of the ideal line.

    The label names the curve with this throughput, unless all curves have about the same.
    """
    alone = {max(rate / share / ranks for ranks, rate, share in curve): name for curve, name in points.items()}
    most = max(alone)
    return most, IDEAL if min(alone) > SAME * most else f"{IDEAL} of {alone[most]}"


def _spaced(ranks: Sequence[int]) -> list[int]:
    """Return the numbers of ranks whose labels fit on a logarithmic axis, always including the largest."""
    spaced = [ranks[-1]]
    for each in reversed(ranks[:-1]):
        if spaced[-1] / each >= (ranks[-1] / ranks[0]) ** 0.06:
            spaced.append(each)
    return spaced[::-1]


def _apart(wanted: Sequence[float]) -> list[float]:
    """Return label heights near ``wanted`` without overlap. All heights are fractions of the height of the axes."""
    heights, above = list(wanted), 2.0
    falling = sorted(range(len(wanted)), key=lambda index: -wanted[index])
    for index in falling:
        above = heights[index] = min(wanted[index], above - APART)
    below = LOWEST - APART
    for index in reversed(falling):  # labels below the axes move up, with those above them
        below = heights[index] = max(heights[index], below + APART)
    return heights


MARKERS = "os^D"  # in turn
WIDTHS, MARKER_SIZES = (3.4, 1.2), (8.0, 3.0)  # points, from the first to the last line, so that all are visible


@dataclass(frozen=True)
class SweepLine:
    """A line of a sweep figure: the swept values as text, and the predicted time in seconds for each value.

    The time of a run that hangs is None.
    """

    name: str
    values: Sequence[str]
    seconds: Sequence[float | None]


def sweep_figure(title: str, key: str, lines: Sequence[SweepLine]) -> Figure:
    """Return a figure of predicted times against the values of a swept setting, evenly spaced in the given order.

    ``key`` is the label of the horizontal axis. Raise InputError if there are no times or more than 24 lines.

    >>> len(sweep_figure("star", "hosts", [SweepLine("ring", ["2", "4"], [0.1, 0.2])]).axes[0].lines)
    1
    """
    order = {
        value: place for place, value in enumerate(dict.fromkeys(value for line in lines for value in line.values))
    }
    points = [
        [(order[value], seconds) for value, seconds in zip(line.values, line.seconds, strict=True) if seconds]
        for line in lines
    ]
    if len(lines) > 24:
        raise InputError(f"a sweep figure can have at most 24 lines, not {len(lines)}; use fewer algorithms or sizes")
    if not any(points):
        raise InputError("a sweep figure must have at least one time, not 0")
    figure = titled_figure(title, "predicted", 9.0, 5.6)
    check_text("key", key, "cluster.hosts")
    axes = figure.add_axes((0.095, 0.16, 0.7, 0.69))
    colors = chunk_colors(len(lines))
    widths, sizes = (np.linspace(*each, len(lines)) for each in (WIDTHS, MARKER_SIZES))
    for number, (line, line_points) in enumerate(zip(lines, points, strict=True)):
        if line_points:
            across, seconds = zip(*line_points, strict=True)
            look = {"color": colors[number], "linewidth": widths[number], "markersize": sizes[number]}
            marker = MARKERS[number % len(MARKERS)]
            axes.plot(across, seconds, f"-{marker}", gid=line.name, label=line.name, **look)
    axes.set(yscale="log")
    stride = -(-len(order) // 14)  # so that labels fit below the axis
    slant: dict[str, Any] = {"rotation": 25, "ha": "right"} if max(map(len, order)) > 4 else {}
    axes.set_xticks([*order.values()][::stride], [*order][::stride], **slant)
    axes.yaxis.set_major_locator(log_ticks(*axes.get_ylim()))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda seconds, _: format_time(seconds)))
    axes.set_xlabel(key, color=INK, fontsize=10)
    axes.set_ylabel("time", color=INK, fontsize=10)
    clear_axes(axes, keep="both")
    axes.legend(loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False, fontsize=8.5, labelcolor=INK)
    return figure
