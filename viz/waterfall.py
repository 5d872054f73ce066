"""Draw training steps as bars that are divided into phases, to compare algorithms, clusters and what-if scenarios.

If the scenario has no training, each bar is the duration of a collective.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from textwrap import fill

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from collectives.errors import InputError
from collectives.units import format_time
from viz.style import GREY, INK, PAPER, WRONG, clear_axes, label_times, phase_colors, titled_figure

MOST_BARS = 40
NAME_WIDTH = 38  # characters per line of a bar's name
CHARACTER = 0.0125  # width of a character, as a share of the longest bar


@dataclass(frozen=True)
class Bar:
    """The duration of a training step or a collective in seconds, divided into its phases.

    ``seconds`` is the total, or None if the run hangs. It may differ from the sum of ``parts``, because the total and
    each phase are separate medians over steps.
    """

    group: str  # the cluster or the what-if
    name: str  # the algorithm
    parts: Mapping[str, float]
    seconds: float | None


def waterfall_figure(title: str, subtitle: str, bars: Sequence[Bar]) -> Figure:
    """Return a figure with one horizontal bar per row. Raise InputError unless there are 1 to 40 bars.

    >>> len(waterfall_figure("step", "", [Bar("here", "ring", {"sync": 1.0}, 1.0)]).axes)
    1
    """
    if not 0 < len(bars) <= MOST_BARS:
        raise InputError(f"a waterfall needs 1 to {MOST_BARS} bars, not {len(bars)}")
    names = list(dict.fromkeys(name for bar in bars for name in bar.parts))
    colors = phase_colors(names)
    rows = [0.0]  # vertical positions, with a gap between groups
    for before, bar in pairwise(bars):
        rows.append(rows[-1] + (1.0 if before.group == bar.group else 1.4))
    height = 1.5 + 0.4 * (rows[-1] + 1)
    figure = titled_figure(title, subtitle, 10.0, height)
    axes = figure.add_axes((0.33, 0.42 / height, 0.58, 1 - 1.42 / height))
    longest = max((bar.seconds or 0.0 for bar in bars), default=0.0) or 1.0
    for row, bar in zip(rows, bars, strict=True):
        _draw_bar(axes, row, bar, colors, longest)
    _draw_groups(axes, rows, bars)
    axes.set(ylim=(rows[-1] + 0.6, -0.6), xlim=(0, longest * 1.02))
    label_times(axes.xaxis, longest, 6)
    axes.set_yticks([])
    clear_axes(axes)
    for number, name in enumerate(names):
        figure.text(0.33 + 0.12 * number, 1 - 0.86 / height, "■", fontsize=11, color=colors[name], va="center")
        figure.text(0.352 + 0.12 * number, 1 - 0.86 / height, name, fontsize=9, color=INK, va="center")
    return figure


def _draw_bar(axes: Axes, row: float, bar: Bar, colors: Mapping[str, str], longest: float) -> None:
    if bar.seconds is None:
        axes.text(longest * 0.01, row, "never ends", fontsize=9, color=WRONG, va="center")
        return
    begin = 0.0
    for name, seconds in bar.parts.items():
        axes.barh(row, seconds, left=begin, height=0.72, color=colors[name], edgecolor=PAPER, linewidth=0.8, gid=name)
        if seconds > longest * CHARACTER * len(format_time(seconds)):
            middle = begin + seconds / 2
            axes.text(middle, row, format_time(seconds), fontsize=7.5, color=PAPER, ha="center", va="center")
        begin += seconds
    axes.annotate(
        format_time(bar.seconds), (max(begin, bar.seconds), row), (6, 0), textcoords="offset points", fontsize=9,
        color=INK, fontweight="bold", va="center", annotation_clip=False,
    )  # fmt: skip


def _draw_groups(axes: Axes, rows: Sequence[float], bars: Sequence[Bar]) -> None:
    """Write bar names, if they differ, to the left of the bars. Write each group name once, further left."""
    place = axes.get_yaxis_transform()
    is_alone = len({bar.name for bar in bars}) == 1
    for group in dict.fromkeys(bar.group for bar in bars):
        group_rows = [row for row, bar in zip(rows, bars, strict=True) if bar.group == group]
        words = fill(group, NAME_WIDTH if is_alone else NAME_WIDTH - 14, max_lines=3, placeholder=" …")
        middle = (group_rows[0] + group_rows[-1]) / 2
        axes.text(
            -0.545, middle, words, transform=place, fontsize=9, color=INK, va="center", linespacing=1.05,
            parse_math=False,
        )  # fmt: skip
    for row, bar in zip(rows, bars, strict=True):
        if not is_alone:
            words = bar.name if len(bar.name) < 22 else f"{bar.name[:20]}…"
            axes.text(
                -0.015, row, words, transform=place, fontsize=8.5, color=GREY, ha="right", va="center", parse_math=False
            )
