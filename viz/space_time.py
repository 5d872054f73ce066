"""A space-time diagram of a trace, with ranks from top to bottom and time from left to right."""

from collections.abc import Sequence
from textwrap import shorten, wrap
from typing import Any, Literal

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from collectives.records.messages import Messages
from collectives.records.spans import Spans
from collectives.records.trace import ProgramFailure, Trace
from collectives.units import format_time
from viz.captions import (
    check_something_happens,
    describe_busiest_link,
    describe_failure,
    describe_trace,
    is_stuck_at_once,
)
from viz.style import DPI, FAINT, GREY, INK, PAPER, WRONG, chunk_colors, clear_axes, label_times, phase_colors

WIDTH = 10.0  # inches
TRAINING_STEPS = 4  # training steps that are drawn
MOST_MESSAGES = 20_000
LINE = 125  # characters per line of small text


def space_time_figure(trace: Trace) -> Figure:
    """Return a space-time diagram with a line from sender to receiver for each message, and a bar for each span.

    A training run is shown until the end of its fourth step. If there are more than 20,000 messages, the figure shows
    an evenly spaced subset and its size. A PNG is 1500 pixels wide. Raise InputError if the trace is empty.

    >>> import simcomm
    >>> trace = simcomm.run("all_reduce/ring", simcomm.star(4, "10 Gbit/s", "5 us"), 1 << 20)
    >>> space_time_figure(trace).texts[0].get_text()
    'all_reduce/ring'
    """
    check_something_happens(trace)
    height = min(12.0, max(3.4, 1.7 + 0.42 * trace.world_size))
    figure = Figure(figsize=(WIDTH, height), dpi=DPI, facecolor=PAPER)
    axes = figure.add_axes((0.075, 0.45 / height, 0.79, 1 - (0.45 + 0.95) / height))
    first_steps = trace.spans.end[(trace.spans.step < TRAINING_STEPS) & ~trace.spans.named("reduce")]
    until = min(trace.elapsed, max(first_steps.tolist(), default=trace.elapsed))
    messages, spans = trace.messages.select(trace.messages.begin < until), trace.spans.select(trace.spans.begin < until)
    sample = messages if len(messages) <= MOST_MESSAGES else messages[:: -(-len(messages) // MOST_MESSAGES)]
    _draw_spans(axes, spans, behind=len(messages) > 0)
    _draw_messages(axes, sample)
    if trace.failure is not None:
        _mark_failure(axes, trace.failure, until)
    _label_axes(axes, trace.world_size, until)
    if is_stuck_at_once(trace):
        axes.xaxis.set_major_locator(NullLocator())
    omissions = ""
    if until < trace.elapsed:
        omissions += f"  ·  first {TRAINING_STEPS} of {trace.spans.step.max() + 1} steps"
    if len(sample) < len(messages):
        omissions += f"  ·  showing {len(sample)} of {len(messages)} messages"
    _draw_heading(figure, trace, height, omissions)
    return figure


def _mark_failure(axes: Axes, failure: ProgramFailure, until: float) -> None:
    """Mark a failed rank with a cross. In a deadlock, write next to each rank which rank it waits for."""
    at, cycle = min(failure.at, until), failure.circle
    offset, side = ((8, 0), "left") if at < until / 2 else ((-8, 0), "right")
    for rank, peer in zip(cycle, (*cycle[1:], *cycle[:1]), strict=True):
        look: dict[str, Any] = {"ha": side, "va": "center", "fontsize": 9, "color": WRONG}
        axes.annotate(f"waits for rank {peer}", (at, rank), offset, textcoords="offset points", **look)
    axes.scatter(
        [at] * len(failure.ranks), failure.ranks, s=50 if cycle else 110, marker="o" if cycle else "X",
        color=PAPER if cycle else WRONG, edgecolors=WRONG if cycle else PAPER, linewidths=1.5 if cycle else 1,
        zorder=6, clip_on=False,
    )  # fmt: skip


def _draw_spans(axes: Axes, spans: Spans, behind: bool) -> None:
    """Draw each span as a bar in its rank's row, and add a legend. ``behind`` makes all bars paler."""
    colors = phase_colors(list(dict.fromkeys(span.name for span in spans)))
    half = 0.32 if set(colors) - {"reduce"} else 0.1
    corners = [
        [(s.begin, s.rank - half), (s.end, s.rank - half), (s.end, s.rank + half), (s.begin, s.rank + half)]
        for s in spans
    ]
    faces = [colors[s.name] for s in spans]
    axes.add_collection(
        PolyCollection(corners, facecolors=faces, edgecolors=PAPER, linewidths=0.3, alpha=0.6 if behind else 1.0)
    )
    if colors:
        bars = [Patch(facecolor=color, label=name, alpha=0.6 if behind else 1.0) for name, color in colors.items()]
        axes.add_artist(_key(axes, bars, "on a rank", at_top=not behind))


def _draw_messages(axes: Axes, messages: Messages) -> None:
    """Draw a line per message in the color of its chunk, with a dot at its arrival if there is room."""
    chunks = np.unique(messages.chunk).tolist()
    colors = dict(zip(chunks, chunk_colors(len(chunks)), strict=True))
    lines = [[(m.begin, m.src), (m.end, m.dst)] for m in messages]
    is_dotted = len(messages) <= 500
    width = 1.4 if is_dotted else 0.5
    axes.add_collection(LineCollection(lines, colors=[colors[m.chunk] for m in messages], linewidths=width, zorder=3))
    if is_dotted:
        axes.scatter(
            [m.end for m in messages], [m.dst for m in messages], s=16, c=[colors[m.chunk] for m in messages],
            edgecolors=PAPER, linewidths=0.6, zorder=4, clip_on=False,
        )  # fmt: skip
    if chunks:
        shown = chunks if len(chunks) <= 16 else [chunks[round(i)] for i in np.linspace(0, len(chunks) - 1, 9)]
        keys = [Line2D([], [], color=colors[chunk], linewidth=2.2, label=str(chunk)) for chunk in shown]
        axes.add_artist(_key(axes, keys, "chunk sent", at_top=True))


def _key(axes: Axes, handles: Sequence[Artist], title: str, at_top: bool) -> Legend:
    """Return a legend to the right of the picture: at the upper end if ``at_top`` is True, else at the lower end."""
    words = [str(handle.get_label()) for handle in handles]
    corner: Literal["upper left", "lower left"] = "upper left" if at_top else "lower left"
    key = Legend(
        axes, handles, words, title=title, frameon=False, fontsize=8, title_fontsize=8, labelcolor=INK,
        loc=corner, bbox_to_anchor=(1.01, 1.03 if at_top else -0.03), ncols=1 if len(handles) <= 8 else 2,
        handlelength=1.2, labelspacing=0.35, columnspacing=1.0, alignment="left",
    )  # fmt: skip
    key.get_title().set_color(GREY)
    return key


def _label_axes(axes: Axes, ranks: int, until: float) -> None:
    axes.set(xlim=(0, until), ylim=(ranks - 0.5, -0.5))
    axes.margins(0)
    label_times(axes.xaxis, until, 8)
    axes.yaxis.set_major_locator(MaxNLocator(min(ranks, 32), integer=True, min_n_ticks=1))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda rank, _: f"rank {rank:.0f}" if 0 <= rank < ranks else ""))
    clear_axes(axes, keep="both")
    axes.tick_params(labelcolor=INK, color=FAINT, length=3)


def _draw_heading(figure: Figure, trace: Trace, height: float, shown: str) -> None:
    def line(inches_down: float, words: str, size: float, color: str, bold: bool = False) -> None:
        weight = "bold" if bold else "normal"
        figure.text(
            0.02, 1 - inches_down / height, words, fontsize=size, color=color, fontweight=weight, parse_math=False
        )

    line(0.32, trace.title, 14, INK, bold=True)
    elapsed = "" if is_stuck_at_once(trace) else f"  ·  {format_time(trace.elapsed)}"
    line(0.54, f"{describe_trace(trace)}{elapsed}{shown}", 9, GREY)
    if trace.failure is None:
        line(0.73, describe_busiest_link(trace), 9, GREY)
    else:
        first, *more = wrap(describe_failure(trace), LINE)
        line(0.71, first, 9, WRONG)
        line(0.86, shorten(" ".join(more), LINE, placeholder=" …"), 9, WRONG)
