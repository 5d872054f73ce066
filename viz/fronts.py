"""Plot candidates and their Pareto front: instance types by time and cost, or device meshes by speed and memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from collectives.checks import check_text
from collectives.errors import InputError
from viz.style import (
    DPI,
    FAINT,
    GREY,
    INK,
    PAPER,
    chunk_colors,
    clear_axes,
    fit_left,
    fit_words,
    format_tick,
    log_ticks,
    scale_log,
    spread_labels,
    titled_figure,
)

LABEL_SIZE, LABEL_WIDTH = 7.5, 2.8  # points, inches
COLUMNS = 3  # panels next to each other
LINE_APART = 0.07  # least distance between two labels, as a fraction of the height


@dataclass(frozen=True)
class Priced:
    """A candidate instance type in ``money_figure``. Its time and its cost have a low, a middle and a high estimate.

    ``kind``, such as the type of GPU, selects the color.
    """

    label: str
    kind: str
    hours: tuple[float, float, float]  # low, middle, high
    dollars: tuple[float, float, float]
    is_front: bool = False


def money_figure(title: str, subtitle: str, candidates: Sequence[Priced], limits: tuple[float, float]) -> Figure:
    """Return a figure of training cost against training time.

    ``limits`` are the deadline in hours and the budget in dollars. Use infinity for no limit.

    >>> one = Priced("a box", "A100", (1.0, 2.0, 3.0), (4.0, 8.0, 12.0), is_front=True)
    >>> len(money_figure("a plan", "", [one], (10.0, float("inf"))).axes)
    1
    """
    figure = titled_figure(title, subtitle, 9.6, 6.2)
    axes = figure.add_axes((0.085, 0.1, 0.63, 0.74))
    colors = _colors(candidates)
    for candidate in candidates:
        color = colors.get(candidate.kind, FAINT)
        hours, dollars = candidate.hours[1], candidate.dollars[1]
        if candidate.is_front:
            axes.plot(candidate.hours[::2], [dollars] * 2, color=color, linewidth=1.1, alpha=0.7, zorder=3)
            axes.plot([hours] * 2, candidate.dollars[::2], color=color, linewidth=1.1, alpha=0.7, zorder=3)
        size = 8.0 if candidate.is_front else 4.5
        edge = INK if candidate.is_front else PAPER
        axes.plot(
            hours, dollars, "o", color=color, markersize=size, markeredgecolor=edge, markeredgewidth=0.7,
            zorder=4 if candidate.is_front else 2, gid=candidate.label,
        )  # fmt: skip
    if not candidates:
        axes.text(0.5, 0.5, "no candidates", color=GREY, fontsize=13, ha="center", transform=axes.transAxes)
    front = sorted((point for point in candidates if point.is_front), key=lambda point: point.hours[1])
    steps = [point.hours[1] for point in front], [point.dollars[1] for point in front]
    axes.step(*steps, where="post", color=GREY, linewidth=1.2, linestyle="--", zorder=1, gid="front")
    spans = (axes.dataLim.intervalx, axes.dataLim.intervaly) if candidates else ((1.0, 10.0), (1.0, 10.0))
    scale_log(axes, "x", log_ticks(*spans[0]))
    scale_log(axes, "y", log_ticks(*spans[1]), lambda dollars: f"${format_tick(dollars)}")
    axes.set_xlabel("training time in hours (log)", color=INK, fontsize=10)
    axes.set_ylabel("cost in dollars (log)", color=INK, fontsize=10)
    clear_axes(axes, keep="both")
    fit_left(axes)
    _draw_limits(axes, limits)
    _draw_labels(axes, front, colors)
    others = {} if {point.kind for point in candidates} <= colors.keys() else {"others": FAINT}
    _draw_legend(figure, colors | others)
    return figure


def _colors(candidates: Sequence[Priced]) -> dict[str, str]:
    """Return a color for up to eight kinds of candidates, by kind. Kinds on the Pareto front take precedence."""
    order = sorted(candidates, key=lambda point: (not point.is_front, point.dollars[1]))
    chosen = list(dict.fromkeys(point.kind for point in order))[:8]  # other kinds are grey
    return dict(zip(chosen, chunk_colors(len(chosen)), strict=True))


def _draw_limits(axes: Axes, limits: tuple[float, float]) -> None:
    hours, dollars = limits
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    look: dict[str, Any] = {"color": GREY, "fontsize": 8, "zorder": 1}
    if hours < right:
        hours = max(left, hours)
        axes.axvspan(hours, right, color=FAINT, alpha=0.5, linewidth=0, zorder=0, gid="deadline")
        axes.text(hours, high, "after the deadline", ha="right", va="top", rotation=90, **look)
    if dollars < high:
        dollars = max(low, dollars)
        axes.axhspan(dollars, high, color=FAINT, alpha=0.5, linewidth=0, zorder=0, gid="budget")
        axes.text(left, dollars, "over the budget", ha="left", va="bottom", **look)
    axes.set(xlim=(left, right), ylim=(low, high))


def _draw_labels(axes: Axes, front: Sequence[Priced], colors: dict[str, str]) -> None:
    """Label the candidates on the Pareto front. Labels are to the right of the axes, near the height of their dots."""
    low, high = axes.get_ylim()
    heights = [log(candidate.dollars[1] / low) / log(high / low) for candidate in front]
    is_short = len(front) > 1 / LINE_APART  # names only, one below the other
    apart = 1 / len(front) if is_short else LINE_APART
    for candidate, height in zip(front, spread_labels(heights, apart), strict=True):
        hours, dollars = candidate.hours[1], candidate.dollars[1]
        numbers = "" if is_short else f"\n{format_tick(hours)} hours, ${format_tick(dollars)}"
        axes.annotate(
            fit_words(candidate.label, LABEL_WIDTH, LABEL_SIZE) + numbers, xy=(hours, dollars),
            xytext=(1.02, height), textcoords="axes fraction",
            fontsize=LABEL_SIZE, color=colors.get(candidate.kind, GREY), va="center", parse_math=False,
            arrowprops={"arrowstyle": "-", "color": FAINT, "linewidth": 0.7},
        )  # fmt: skip


def _draw_legend(figure: Figure, colors: dict[str, str]) -> None:
    for number, (kind, color) in enumerate(colors.items()):
        x, y = 0.06 + 0.103 * number, 0.025
        figure.text(x, y, "●", fontsize=8, color=color, va="center")
        figure.text(x + 0.013, y, kind[:15], fontsize=7, color=INK, va="center", parse_math=False)


@dataclass(frozen=True)
class MeshDots:
    """The candidate device meshes of one panel in ``meshes_figure``.

    ``front`` has the indices of the meshes on the Pareto front. Every other list has one entry per mesh.
    """

    title: str
    rates: Sequence[float]  # tokens/s
    memory_gib: Sequence[float]
    strategies: Sequence[str]
    names: Sequence[str]
    front: Sequence[int]
    limit_gib: float  # memory of a device


def meshes_figure(title: str, jobs: Sequence[MeshDots]) -> Figure:
    """Return a figure of throughput against memory per device, with a panel for each entry in ``jobs``.

    Raise InputError if there are no meshes.

    >>> dots = MeshDots("8 x H100", [9e4, 8e4], [60.0, 30.0], ["zero3", "tensor"], ["zero3 8", "tp 8"], [0, 1], 80.0)
    >>> len(meshes_figure("llama", [dots]).axes)
    1
    """
    check_text("title", title, "Two racks")
    if not any(len(job.rates) for job in jobs):
        raise InputError(f"{title}: nothing to draw: no meshes")
    strategies = sorted({strategy for job in jobs for strategy in job.strategies})
    colors = dict(zip(strategies, chunk_colors(len(strategies)), strict=True))
    columns, rows = min(len(jobs), COLUMNS), -(-len(jobs) // COLUMNS)
    figure = Figure(figsize=(6.4 * columns, 5.2 * rows), dpi=DPI, facecolor=PAPER, layout="constrained")
    figure.suptitle(title, color=INK, fontsize=13, fontweight="bold", x=0.01, ha="left", parse_math=False)
    for number, job in enumerate(jobs):
        axes = figure.add_subplot(rows, columns, number + 1, facecolor=PAPER)
        for strategy in strategies:
            chosen = [k for k, other in enumerate(job.strategies) if other == strategy]
            axes.scatter(
                [job.memory_gib[k] for k in chosen], [job.rates[k] for k in chosen], s=7, alpha=0.5, linewidths=0,
                color=colors[strategy], label=strategy if number == 0 else None,
            )  # fmt: skip
        front = [job.memory_gib[k] for k in job.front], [job.rates[k] for k in job.front]
        axes.plot(*front, color=INK, linewidth=1, label="fastest for its memory" if number == 0 else None)
        for k in job.front[:1]:
            axes.annotate(
                f"{job.names[k]}: {job.rates[k]:,.0f}", (job.memory_gib[k], job.rates[k]), xytext=(0, 8),
                textcoords="offset points", fontsize=8, color=INK,
                ha="left" if 2 * job.memory_gib[k] < job.limit_gib else "right",
            )  # fmt: skip
        label = "memory of a device" if number == 0 else None
        axes.axvline(job.limit_gib, color=GREY, linestyle="--", linewidth=1, label=label)
        axes.set_xlim(0, MaxNLocator(6).tick_values(0, 1.3 * job.limit_gib)[-1])
        axes.set_ylim(0, MaxNLocator(6).tick_values(0, 1.04 * max(job.rates))[-1])
        axes.set_title(job.title, fontsize=10, color=INK, loc="left")
        axes.set_xlabel("used memory of a device (GiB)", color=INK, fontsize=9)
        axes.yaxis.set_major_formatter("{x:,.0f}")
        clear_axes(axes, keep="both")
        if number % columns == 0:
            axes.set_ylabel("throughput (tokens/s)", color=INK, fontsize=9)
    entries = min(4 * columns, len(strategies) + 2)
    figure.legend(loc="outside lower center", ncols=entries, frameon=False, fontsize=9, markerscale=2.5)
    return figure
