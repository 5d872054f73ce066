"""Plot predicted against measured times on logarithmic axes, with one dot per measurement."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullFormatter

from collectives.checks import check_text
from collectives.errors import InputError
from collectives.units import format_time
from viz.style import DPI, FAINT, GREY, INK, PAPER, chunk_colors

BAND = 1.3  # the grey band: predictions off by less than this factor


@dataclass(frozen=True)
class Dots:
    """A series of measured and predicted times in seconds, with one entry per measurement.

    ``panel`` is the title of the panel that shows the series, and ``family`` selects the color. ``measured_range`` has
    the shortest and longest measured time, and ``predicted_range`` has the bounds of the prediction interval. Ranges
    that are empty are not drawn.
    """

    panel: str
    family: str
    measured: Sequence[float]
    predicted: Sequence[float]
    measured_range: Sequence[tuple[float, float]] = ()
    predicted_range: Sequence[tuple[float, float]] = ()


def accuracy_figure(title: str, subtitle: str, dots: Sequence[Dots]) -> Figure:
    """Return a figure of predicted against measured times. Raise InputError if there are no dots.

    >>> len(accuracy_figure("all", "", [Dots("small", "EFA", [1e-5], [2e-5])]).axes)
    1
    """
    check_text("title", title, "Two racks")
    check_text("subtitle", subtitle, "of 16 hosts")
    if not any(len(series.measured) for series in dots):
        raise InputError(f"{title}: nothing to draw: no rows")
    panels = list(dict.fromkeys(series.panel for series in dots))
    families = sorted({series.family for series in dots})
    colors = dict(zip(families, chunk_colors(len(families)), strict=True))
    figure = Figure(figsize=(4.2 * len(panels) + 0.6, 5.4), dpi=DPI, facecolor=PAPER)
    for index, panel in enumerate(panels):
        width = 1 / len(panels)
        axes = figure.add_axes((index * width + 0.2 * width, 0.24, 0.74 * width, 0.58))
        _draw_panel(axes, panel, [series for series in dots if series.panel == panel], colors)
    figure.text(0.03, 0.94, title, fontsize=13, fontweight="bold", color=INK, parse_math=False)
    figure.text(0.03, 0.895, subtitle, fontsize=9.5, color=GREY, parse_math=False)
    handles = [figure.axes[0].plot([], [], "o", color=colors[family], label=family)[0] for family in families]
    _add_legend(figure, handles)
    return figure


def _add_legend(figure: Figure, handles: Sequence[Any]) -> None:
    for columns in range(len(handles), 0, -1):
        legend = figure.legend(
            handles=handles, loc="lower center", ncols=columns, frameon=False, fontsize=9, labelcolor=INK,
            columnspacing=1.4, handletextpad=0.2,
        )  # fmt: skip
        if columns == 1 or legend.get_window_extent().width <= figure.bbox.width:
            return
        legend.remove()


def _draw_panel(axes: Axes, panel: str, dots: Sequence[Dots], colors: dict[str, str]) -> None:
    times = np.concatenate([[*series.measured, *series.predicted] for series in dots])
    ranges = [each for series in dots for each in (*series.measured_range, *series.predicted_range)]
    times = np.concatenate([times, np.ravel(ranges)])
    ends = np.array([times.min() / 1.5, times.max() * 1.5])
    axes.fill_between(ends, ends / BAND, ends * BAND, color=FAINT, linewidth=0)
    axes.plot(ends, ends, color=GREY, linewidth=0.8)
    for series in dots:
        look: dict[str, Any] = {"color": colors[series.family], "linewidth": 1.0, "alpha": 0.7}
        if series.measured_range:
            axes.hlines(series.predicted, *np.transpose(series.measured_range), **look)
        if series.predicted_range:
            axes.vlines(series.measured, *np.transpose(series.predicted_range), **look)
        axes.plot(series.measured, series.predicted, "o", color=colors[series.family], markersize=3, alpha=0.7)
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends, aspect="equal")
    axes.set_title(panel, fontsize=10, color=INK, loc="left")
    axes.set_xlabel("measured time", fontsize=9, color=INK)
    axes.set_ylabel("predicted time", fontsize=9, color=INK)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(FixedLocator(_ticks(*ends)))
        axis.set_major_formatter(lambda seconds, _: format_time(seconds))
        axis.set_minor_formatter(NullFormatter())
    axes.tick_params(labelsize=8, colors=GREY)


def _ticks(low: float, high: float) -> list[float]:
    """Return up to six round tick positions (seconds) between ``low`` and ``high``."""
    decades = range(floor(log10(low)), ceil(log10(high)) + 1)
    for text in ("1", "1 3", "1 2 5", "1 1.5 2 3 5 7", "1 1.5 2 2.5 3 3.5 4 4.5 5 5.5 6 6.5 7 7.5 8 8.5 9 9.5"):
        steps = [float(step) for step in text.split()]
        ticks = [step * 10.0**decade for decade in decades for step in steps if low <= step * 10.0**decade <= high]
        if len(ticks) >= 2:
            break
    return ticks[:: -(-len(ticks) // 6) or 1]
