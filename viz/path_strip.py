"""Draw a run's critical path as a colored bar over time, with the total time of each kind of segment below."""

from collections.abc import Sequence

from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from collectives.records.limits import find_limits
from collectives.records.trace import Trace
from collectives.records.waits import PathStretch, divide_path
from collectives.units import format_time
from viz.captions import check_something_happens, describe_trace
from viz.layout.layout import is_through_memory
from viz.style import BUSY, FAINT, INK, PHASES, chunk_colors, clear_axes, label_times, phase_colors, titled_figure

ROW = 0.3  # inches
Row = tuple[str, str, float]  # name, color, seconds


def path_figure(trace: Trace) -> Figure:
    """Return a figure of the critical path over time, with the total time of each kind of segment below.

    >>> import simcomm
    >>> trace = simcomm.run("all_reduce/ring", simcomm.star(4, "10 Gbit/s", "5 us"), 1 << 20)
    >>> path_figure(trace).texts[0].get_text()
    'all_reduce/ring: the critical path'
    """
    check_something_happens(trace)
    parts = divide_path(trace)
    names = _name_parts(trace, parts)
    rows = _rows(parts, names)
    colors = {name: color for name, color, _ in rows}
    height = 2.15 + ROW * len(rows)
    limits = find_limits(trace)
    subtitle = f"{describe_trace(trace)}  ·  {format_time(trace.elapsed)}"
    figure = titled_figure(f"{trace.title}: the critical path", subtitle, 10.0, height)
    if limits.kind != "unknown":
        words = f"{limits.heading}. {limits.sentence}"
        words = words if len(words) < 130 else f"{limits.heading}."
        figure.text(0.02, 1 - 0.8 / height, words, fontsize=9.5, color=INK, parse_math=False)
    strip = figure.add_axes((0.03, 1 - 1.5 / height, 0.94, 0.42 / height))
    corners = [[(p.begin, 0), (p.end, 0), (p.end, 1), (p.begin, 1)] for p in parts]
    strip.add_collection(PolyCollection(corners, facecolors=[colors[name] for name in names], gid="parts"))
    strip.set(xlim=(0, trace.elapsed), ylim=(0, 1), yticks=[])
    label_times(strip.xaxis, trace.elapsed, 8)
    clear_axes(strip)
    _draw_rows(figure, rows, trace.elapsed, height)
    return figure


def _name_parts(trace: Trace, parts: Sequence[PathStretch]) -> list[str]:
    """Return the label of each segment. If more than six links occur, all but the five slowest share one label."""
    ranks = {host: f"rank {rank}" for rank, host in enumerate(trace.hosts)}
    spent: dict[str, float] = {}
    for part in parts:
        if part.kind == "bandwidth":
            spent[part.name] = spent.get(part.name, 0.0) + part.end - part.begin
    longest = sorted(spent, key=lambda name: -spent[name])
    shown = longest if len(longest) <= 6 else longest[:5]  # the sixth row contains all other links
    words = {name: " → ".join(ranks.get(node, node) for node in name.split(" → ")) for name in shown}
    words = {name: f"bandwidth of {word}" if name else "messages" for name, word in words.items()}
    if is_through_memory(trace):
        words |= {name: "bandwidth of the memory" for name in words if name}
    other = f"bandwidth of {len(spent) - len(shown)} other links"
    return [words.get(part.name, other) if part.kind == "bandwidth" else part.name or part.kind for part in parts]


def _rows(parts: Sequence[PathStretch], names: Sequence[str]) -> list[Row]:
    """Return a row for each label: its name, color and total seconds. Long times come first, and waiting comes last."""
    seconds: dict[str, float] = {}
    kinds: dict[str, str] = {}
    for part, name in zip(parts, names, strict=True):
        seconds[name] = seconds.get(name, 0.0) + part.end - part.begin
        kinds[name] = part.kind
    links = sorted((name for name in kinds if kinds[name] == "bandwidth"), key=lambda name: -seconds[name])
    colors = dict(zip(links, chunk_colors(max(len(links), 1)), strict=False))
    colors |= phase_colors([name for name in kinds if kinds[name] == "computing"])
    colors |= {"latency": BUSY, "waiting": FAINT}
    colors |= {name: PHASES["reduce"] for name in kinds if name == "reduce"}
    ordered = sorted(kinds, key=lambda name: (kinds[name] == "waiting", -seconds[name]))
    return [(name, colors[name], seconds[name]) for name in ordered]


def _draw_rows(figure: Figure, rows: Sequence[Row], elapsed: float, height: float) -> None:
    axes = figure.add_axes((0.32, 0.12 / height, 0.5, ROW * len(rows) / height))
    for number, (name, color, seconds) in enumerate(rows):
        axes.barh(number, seconds, height=0.66, color=color, gid=name)
        share = f"{seconds / elapsed:.0%}".replace("%", " %") if seconds >= 0.01 * elapsed else "less than 1 %"
        axes.annotate(
            f"{format_time(seconds)}  ·  {share}", (seconds, number), (6, 0),
            textcoords="offset points", fontsize=9, color=INK, va="center", annotation_clip=False,
        )  # fmt: skip
        axes.annotate(
            name, (0, number), (-8, 0), textcoords="offset points", fontsize=9, color=INK, va="center", ha="right",
            annotation_clip=False, parse_math=False,
        )  # fmt: skip
    axes.set(xlim=(0, elapsed), ylim=(len(rows) - 0.4, -0.6))
    axes.set_axis_off()
