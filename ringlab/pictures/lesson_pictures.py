"""Draws plots for lessons: ranks that wait for each other, and pipeline schedules."""

from collections.abc import Sequence
from math import cos, pi, sin
from pathlib import Path

import networkx as nx
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, Patch

from collectives.units import format_time
from ringlab.pictures.lesson_runs import RankSpan
from virtual.ranks.finding import ProgramFinding
from viz.style import (
    FAINT,
    GREY,
    INK,
    PAPER,
    WRONG,
    clear_axes,
    label_times,
    phase_colors,
    text_color,
    titled_figure,
    write_figure,
)

WIDTH = 11.0  # inches


def draw_waits(finding: ProgramFinding, ranks: int, file: Path) -> None:
    """Draw the ranks in a circle. An arrow leads from each waiting rank to the rank that it waits for.

    Ranks and arrows in cycles are red. An arrow's label is the line at which the rank waits.
    """
    waits = [
        (rank, other, place.site)
        for place in finding.places
        for rank, others in zip(place.ranks, place.awaits, strict=False)
        for other in others
    ]
    parts = nx.strongly_connected_components(nx.DiGraph((rank, other) for rank, other, _ in waits))
    part_of = {rank: part for part in parts if len(part) > 1 for rank in part}
    words = " -> ".join(map(str, [*finding.circle, finding.circle[0]]))
    subtitle = f'arrows: "waits for"; red: a cycle, such as {words}'
    figure = titled_figure("Which rank waits for which", subtitle, 6.4, 6.4)
    axes = figure.add_axes((0.04, 0.02, 0.92, 0.86))
    axes.set(xlim=(-1.45, 1.45), ylim=(-1.35, 1.35), aspect="equal")
    axes.set_axis_off()
    at = [(sin(2 * pi * rank / ranks), cos(2 * pi * rank / ranks)) for rank in range(ranks)]
    for rank, other, site in waits:
        color = WRONG if other in part_of.get(rank, ()) else GREY
        _draw_arrow(axes, at[rank], at[other], color, f"line {site.line}" if site is not None else "")
    for rank, (x, y) in enumerate(at):
        is_stuck = rank in part_of
        axes.text(
            x, y, f"rank {rank}", ha="center", va="center", fontsize=12, fontweight="bold",
            color=PAPER if is_stuck else INK, zorder=5,
            bbox={"boxstyle": "circle,pad=0.5", "facecolor": WRONG if is_stuck else FAINT, "edgecolor": PAPER},
        )  # fmt: skip
    write_figure(figure, file)


def _draw_arrow(axes: Axes, begin: tuple[float, float], end: tuple[float, float], color: str, words: str) -> None:
    """Draw a bent arrow from one rank to another, so that an arrow in the other direction does not cover it."""
    arrow = FancyArrowPatch(
        begin, end, connectionstyle="arc3,rad=-0.25", arrowstyle="-|>", mutation_scale=22, linewidth=2.2,
        color=color, shrinkA=42, shrinkB=42,
    )  # fmt: skip
    axes.add_patch(arrow)
    (x0, y0), (x1, y1) = begin, end
    middle = (x0 + x1) / 2 - 0.16 * (y1 - y0), (y0 + y1) / 2 + 0.16 * (x1 - x0)
    axes.text(
        *middle, words, ha="center", va="center", fontsize=9.5, color=color,
        bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 1.5},
    )  # fmt: skip


def draw_schedules(spans: Sequence[RankSpan], ranks: int, names: Sequence[str], file: Path) -> None:
    """Draw one row per rank, with a box for each forward (F) and backward (B) pass. The bubble is hatched.

    The label of a box is the number of its micro batch. ``names[i]`` is the name of schedule ``i``.
    """
    schedules = sorted({each.span.schedule for each in spans})
    height = 1.2 + len(schedules) * (0.75 + 0.42 * ranks)
    subtitle = "F: forward, B: backward, each with the number of its micro batch; hatched: the bubble"
    figure = titled_figure("Pipeline schedules", subtitle, WIDTH, height)
    passes = [[each for each in spans if each.span.schedule == schedule] for schedule in schedules]
    until = max(max(each.span.end for each in mine) - min(each.span.begin for each in mine) for mine in passes)
    grid = figure.subplots(
        len(schedules), 1, squeeze=False,
        gridspec_kw={"left": 0.07, "right": 0.98, "top": 1 - 1.05 / height, "bottom": 0.4 / height, "hspace": 0.55},
    )  # fmt: skip
    for schedule, mine, axes in zip(schedules, passes, grid[:, 0], strict=True):
        _draw_schedule(axes, mine, ranks, names[schedule] if schedule < len(names) else f"schedule {schedule}", until)
    write_figure(figure, file)


def _draw_schedule(axes: Axes, spans: Sequence[RankSpan], ranks: int, name: str, until: float) -> None:
    begin, end = min(phase.span.begin for phase in spans), max(phase.span.end for phase in spans)
    colors = phase_colors(["forward", "backward"])
    busy = sum(phase.span.end - phase.span.begin for phase in spans)
    axes.barh(range(ranks), [end - begin] * ranks, height=0.8, color=PAPER, edgecolor=FAINT, hatch="////")
    for rank, span in spans:
        left, width, color = span.begin - begin, span.end - span.begin, colors[span.name]
        axes.barh(rank, width, left=left, height=0.8, color=color, edgecolor=PAPER, linewidth=0.8)
        axes.text(
            left + width / 2, rank, f"{span.name[0].upper()}{span.micro_batch}", ha="center", va="center",
            fontsize=7.5, color=text_color(color),
        )  # fmt: skip
    share = 1 - busy / (ranks * (end - begin))
    title = f"{name}: {format_time(end - begin)}, bubble {share:.0%}"
    axes.set_title(title, loc="left", fontsize=10.5, color=INK, fontweight="bold")
    axes.set(xlim=(0, until), ylim=(ranks - 0.5, -0.5), yticks=range(ranks))
    axes.set_yticklabels([f"rank {rank}" for rank in range(ranks)])
    label_times(axes.xaxis, until, 8)
    clear_axes(axes)
    axes.tick_params(labelcolor=INK)
    keys = [Patch(facecolor=colors[phase], label=phase) for phase in colors]
    keys.append(Patch(facecolor=PAPER, edgecolor=FAINT, hatch="////", label="bubble"))
    axes.legend(handles=keys, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3, frameon=False, fontsize=8)
