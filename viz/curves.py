"""Plot training throughput against ranks, and predicted times against the values of a sweep."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from collectives.checks import check_text
from collectives.errors import InputError
from collectives.units import format_time
from viz.style import (
    GREY,
    INK,
    chunk_colors,
    clear_axes,
    fit_left,
    format_tick,
    log_ticks,
    scale_log,
    spread_labels,
    titled_figure,
)

IDEAL = "ideal"
APART = 0.1  # distance between two labels, as a fraction of the height
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

    The label of a curve states its last throughput. The other points of a single curve have labels too. The matplotlib
    line of perfect scaling has the ``gid`` "ideal". Raise InputError if there are no points or more than nine curves.

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
    ranks = sorted({ranks for curve in points for ranks, _, _ in curve})
    if len(ranks) == 1:  # the ideal line is from one rank to this number
        ranks = [1, max(2, *ranks)]
    ends = _draw_lines(axes, points, ranks)
    scale_log(axes, "x", _spaced(ranks))
    scale_log(axes, "y", log_ticks(*axes.dataLim.intervaly))
    axes.set_xlabel("number of ranks (log)", color=INK, fontsize=10)
    axes.set_ylabel("throughput of all ranks in samples/s (log)", color=INK, fontsize=10)
    clear_axes(axes, keep="both")
    fit_left(axes)
    low, high = axes.get_ylim()
    heights = [log(height / low) / log(high / low) for height, _, _ in ends]
    for (_, words, color), height in zip(ends, spread_labels(heights, APART), strict=True):
        axes.text(
            1.02, height, words, transform=axes.transAxes, fontsize=9, color=color, va="center", parse_math=False,
            fontweight="normal" if words.startswith(IDEAL) and "\n" not in words else "bold",
        )  # fmt: skip
    return figure


def _draw_lines(axes: Axes, points: Mapping[Points, str], ranks: Sequence[int]) -> list[End]:
    """Draw the curves and the ideal line. Return the height, label and color of each line's right end."""
    one_rank, ideal = _ideal(points)
    heights = [one_rank * count for count in ranks]
    axes.plot(ranks, heights, "--", color=GREY, linewidth=1.2, gid=IDEAL)
    ends = [(heights[-1], ideal, GREY)]
    for (curve, name), color in zip(points.items(), chunk_colors(len(points)), strict=True):
        counts, rates, shares = zip(*curve, strict=True)
        axes.plot(counts, rates, "o-", color=color, linewidth=2, markersize=4.5, gid=name, clip_on=False)
        ends.append((rates[-1], f"{name}\n{format_tick(rates[-1])} ({shares[-1]:.0%}) at {counts[-1]}", color))
        for place in curve[:-1] if len(points) == 1 else ():
            look: dict[str, Any] = {"textcoords": "offset points", "fontsize": 8, "color": color}
            axes.annotate(format_tick(place[1]), place[:2], xytext=(6, -12), **look)
    return ends


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
    """Return the numbers of ranks whose labels fit on a logarithmic axis, including the first and the last."""
    spaced, least = [ranks[0]], (ranks[-1] / ranks[0]) ** 0.06
    for each in ranks[1:-1]:
        if min(each / spaced[-1], ranks[-1] / each) >= least:
            spaced.append(each)
    return [*spaced, ranks[-1]]


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
    stride = -(-len(order) // 14)  # so that labels fit below the axis
    slant: dict[str, Any] = {"rotation": 25, "ha": "right"} if max(map(len, order)) > 4 else {}
    axes.set_xticks([*order.values()][::stride], [*order][::stride], **slant)
    scale_log(axes, "y", log_ticks(*axes.dataLim.intervaly), format_time)
    axes.set_xlabel(key, color=INK, fontsize=10)
    axes.set_ylabel("time (log)", color=INK, fontsize=10)
    clear_axes(axes, keep="both")
    axes.legend(loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False, fontsize=8.5, labelcolor=INK)
    return figure
