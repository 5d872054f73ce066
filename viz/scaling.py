"""The scaling curve of a training: samples a second against ranks, beside the ideal."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from collectives.errors import InputError
from viz.file_types import check_file
from viz.style.colours import GREY, INK, chunk_colours
from viz.style.figures import clear_axes, titled_figure, write_figure

MOST_CURVES = 9
SAME = 0.99  # of a rate: what is nearer is drawn as one ideal
Points = tuple[tuple[int, float, float], ...]  # ranks, samples a second, share of the ideal


@dataclass(frozen=True)
class Curve:
    """One gradient sync: samples a second of all ranks, and the share of the ideal, for each number of ranks.

    None stands for a training that never ends.
    """

    name: str
    world_sizes: Sequence[int]
    samples_per_s: Sequence[float | None]
    efficiency: Sequence[float | None]


def draw_scaling(title: str, subtitle: str, curves: Sequence[Curve], path: Path | str) -> None:
    """Write the curves as .png, .svg or .pdf. Raise InputError for another suffix, or where there is nothing to draw.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     draw_scaling("star", "", [Curve("ring", [2, 4], [60.0, 100.0], [0.9, 0.75])], Path(folder, "curve.svg"))
    ...     Path(folder, "curve.svg").stat().st_size > 1000
    True
    """
    path = check_file(path, "a scaling curve")
    write_figure(scaling_figure(title, subtitle, curves), path)


def scaling_figure(title: str, subtitle: str, curves: Sequence[Curve]) -> Figure:
    """Return the curves as a figure, the ideal among its lines as "ideal". Raise InputError as ``draw_scaling``."""
    points = _by_points(curves)
    if not points or len(curves) > MOST_CURVES:
        raise InputError(f"{len(curves)} curves, {sum(map(len, points))} points; draw one point or more, nine curves")
    figure = titled_figure(title, subtitle, 9.0, 5.6)
    axes = figure.add_axes((0.095, 0.11, 0.68, 0.74))
    axes.set(xscale="log", yscale="log")
    ranks = sorted({ranks for found in points for ranks, _, _ in found})
    one_rank, ideal = _ideal(points)
    across = ranks if len(ranks) > 1 else [ranks[0] / 2, ranks[0] * 2]  # of one number a level line on both sides
    heights = [one_rank * each for each in ranks] * (1 if len(ranks) > 1 else 2)
    axes.plot(across, heights, "--", color=GREY, linewidth=1.2, gid="ideal")
    ends = [(one_rank * ranks[-1], ideal, GREY)]
    for (found, name), colour in zip(points.items(), chunk_colours(len(points)), strict=True):
        counts, rates, shares = zip(*found, strict=True)
        axes.plot(counts, rates, "o-", color=colour, linewidth=2, markersize=4.5, gid=name, clip_on=False)
        ends.append((rates[-1], f"{name}\n{shares[-1]:.0%} at {counts[-1]}", colour))
    axes.xaxis.set_major_locator(FixedLocator(_spaced(ranks)))
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(
            FuncFormatter(lambda number, _: f"{number:,.4g}" if number < 1e4 else f"{number:,.0f}")
        )
    axes.set_xlabel("ranks", color=INK, fontsize=10)
    axes.set_ylabel("samples a second, of all ranks", color=INK, fontsize=10)
    clear_axes(axes, keep="both")
    low, high = axes.get_ylim()
    places = _apart([(rate, words) for rate, words, _ in ends], low, high)
    for (_, words, colour), height in zip(ends, places, strict=True):
        axes.text(
            1.02, height, words, transform=axes.transAxes, fontsize=9, color=colour, va="center", parse_math=False,
            fontweight="bold" if words != ideal else "normal",
        )  # fmt: skip
    return figure


def _by_points(curves: Sequence[Curve]) -> dict[Points, str]:
    """Return ranks, rate and share of each point, where the training ends, and the name of those that have them.

    Curves that lie upon each other are one, with all of their names.
    """
    found: dict[Points, list[str]] = {}
    for curve in curves:
        every = zip(curve.world_sizes, curve.samples_per_s, curve.efficiency, strict=True)
        if points := tuple((ranks, rate, share) for ranks, rate, share in every if rate and share):
            found.setdefault(points, []).append(curve.name)
    return {points: ", ".join(names) for points, names in found.items()}


def _ideal(points: Mapping[Points, str]) -> tuple[float, str]:
    """Return the highest rate of one rank, and in words whose it is, where curves have ones that differ."""
    alone = {max(rate / share / ranks for ranks, rate, share in found): name for found, name in points.items()}
    most = max(alone)
    return most, "ideal" if min(alone) > SAME * most else f"ideal of {alone[most]}"


def _spaced(ranks: Sequence[int]) -> list[int]:
    """Return the numbers that have room for their words on a logarithmic axis, the last always."""
    kept = [ranks[-1]]
    for each in reversed(ranks[:-1]):
        if kept[-1] / each >= (ranks[-1] / ranks[0]) ** 0.06:
            kept.append(each)
    return kept[::-1]


def _apart(ends: Sequence[tuple[float, str]], low: float, high: float) -> list[float]:
    """Return where the words of each curve stand, as a share of the height: at its end, and none upon another."""
    wanted = [log(rate / low) / log(high / low) for rate, _ in ends]
    found, above = list(wanted), 2.0
    for index in sorted(range(len(ends)), key=lambda index: -wanted[index]):
        found[index] = min(wanted[index], above - 0.1)
        above = found[index]
    return found
