"""Times against the values of a key: a line for each algorithm at each size."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from collectives.errors import InputError
from viz.file_types import check_file
from viz.style import INK, chunk_colours, clear_axes, titled_figure, write_figure

MARKERS = "os^D"  # in turn
WIDTHS, MARKER_SIZES = (3.4, 1.2), (8.0, 3.0)  # points, first and last: of lines that lie on each other both are seen


@dataclass(frozen=True)
class SweepLine:
    """One thing that was predicted with each value, as the value is written; None of a run that never ends."""

    name: str
    values: Sequence[str]
    seconds: Sequence[float | None]


def draw_sweep(title: str, key: str, lines: Sequence[SweepLine], path: Path | str) -> None:
    """Write the lines as .png, .svg or .pdf. Raise InputError for another suffix, or where there is nothing to draw.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     draw_sweep("star", "hosts", [SweepLine("ring", ["2", "4"], [0.1, 0.2])], Path(folder, "hosts.svg"))
    ...     Path(folder, "hosts.svg").stat().st_size > 1000
    True
    """
    path = check_file(path, "a sweep")
    write_figure(sweep_figure(title, key, lines), path)


def sweep_figure(title: str, key: str, lines: Sequence[SweepLine]) -> Figure:
    """Return the lines as a figure; the values stand in their order, equally far apart, which suits a growing range."""
    order = {value: place for place, value in enumerate(dict.fromkeys(one for line in lines for one in line.values))}
    points = [
        [(order[value], seconds) for value, seconds in zip(line.values, line.seconds, strict=True) if seconds]
        for line in lines
    ]
    if not any(points) or len(lines) > 24:
        raise InputError(f"{len(lines)} lines; draw one to 24, one time at least")
    figure = titled_figure(title, f"predicted seconds for values of {key}", 9.0, 5.6)
    axes = figure.add_axes((0.095, 0.13, 0.7, 0.72))
    colours = chunk_colours(len(lines))
    widths, sizes = (np.linspace(*each, len(lines)) for each in (WIDTHS, MARKER_SIZES))
    for number, (line, found) in enumerate(zip(lines, points, strict=True)):
        if found:
            across, seconds = zip(*found, strict=True)
            look = {"color": colours[number], "linewidth": widths[number], "markersize": sizes[number]}
            marker = MARKERS[number % len(MARKERS)]
            axes.plot(across, seconds, f"-{marker}", gid=line.name, label=line.name, **look)
    axes.set(yscale="log")
    stride = -(-len(order) // 14)  # values whose words have room below the axis
    axes.set_xticks([*order.values()][::stride], [*order][::stride], rotation=25, ha="right")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:.3g}"))
    axes.set_ylabel("seconds", color=INK, fontsize=10)
    clear_axes(axes, keep="both")
    axes.legend(loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False, fontsize=8.5, labelcolor=INK)
    return figure
