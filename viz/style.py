"""Colors, titles and axes that all pictures share. The colors are suitable for people with color blindness."""

import colorsys
from collections.abc import Callable, Sequence
from io import BytesIO
from math import ceil, floor, log10
from pathlib import Path
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from collectives.checks import check_text
from collectives.output_files import write_bytes
from viz.captions import time_unit
from viz.file_types import check_file

LOWEST = 0.02  # lowest label, as a fraction of the height of the axes
NARROWEST = 1.2  # least ratio of the ends of a logarithmic axis
ROUNDING = 1e-9  # relative difference that counts as equal
INK, GREY, FAINT, PAPER = "#1b2433", "#5f6b7d", "#d9dee6", "#ffffff"
WRONG = "#c4161c"  # where a program goes wrong
PANE, BUSY = "#eef1f5", "#9aa7bb"  # an empty area; a link in use whose bandwidth is not known

# Paul Tol, "Colour schemes" (SRON/EPS/TN/09-002, 2021): "muted", in an order that keeps neighbours far apart.
_MUTED = ("#332288", "#44aa99", "#cc6677", "#88ccee", "#117733", "#ddcc77", "#882255", "#999933", "#aa4499")

# Okabe and Ito, "Color Universal Design" (2008).
PHASES = {"forward": "#56b4e9", "backward": "#0072b2", "sync": "#d55e00", "optimizer": "#009e73", "reduce": "#e69f00"}
_OTHER_PHASES = ("#cc79a7", "#f0e442", "#999999")

# Link use from idle to full; lightness falls all the way, so it also reads in grey.
USE = ("#d9dee6", "#a9c3dd", "#6d9ac7", "#2f6ba8")


def chunk_colors(count: int) -> list[str]:
    """Return a color for each of ``count`` chunks: up to nine from a fixed list, more from a gradient.

    >>> chunk_colors(2)
    ['#332288', '#44aa99']
    """
    if count <= len(_MUTED):
        return list(_MUTED[:count])
    shares = [index / (count - 1) for index in range(count)]  # positions in a gradient from dark violet to light yellow
    colors = [colorsys.hls_to_rgb(0.77 - 0.62 * share, 0.28 + 0.36 * share, 0.55) for share in shares]
    return ["#" + "".join(f"{round(part * 255):02x}" for part in color) for color in colors]


def phase_colors(names: list[str]) -> dict[str, str]:
    """Return a color for each span name. Forward, backward, sync, optimizer and reduce have fixed colors.

    >>> phase_colors(["forward", "loading"])
    {'forward': '#56b4e9', 'loading': '#cc79a7'}
    """
    unknown = [name for name in names if name not in PHASES]
    others = {name: _OTHER_PHASES[index % len(_OTHER_PHASES)] for index, name in enumerate(unknown)}
    return {name: PHASES.get(name) or others[name] for name in names}


def rgb(color: str) -> tuple[float, float, float]:
    """Return the RGB values of ``#rrggbb``, each from 0 to 1."""
    return int(color[1:3], 16) / 255, int(color[3:5], 16) / 255, int(color[5:7], 16) / 255


def text_color(background: str) -> str:
    """Return a dark or a white text color, whichever is easier to read on ``background``.

    Source: the relative luminance of WCAG 2, without gamma correction.
    """
    red, green, blue = rgb(background)
    return INK if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.55 else PAPER


def use_color(share: float) -> tuple[float, float, float]:
    """Return the color of a link as RGB values from 0 to 1. ``share`` is the link's utilization from 0 to 1."""
    position = min(max(share, 0.0), 1.0) * (len(USE) - 1)
    low = min(int(position), len(USE) - 2)
    first, second, part = rgb(USE[low]), rgb(USE[low + 1]), position - low
    red, green, blue = (a + (b - a) * part for a, b in zip(first, second, strict=True))
    return red, green, blue


DPI = 150


def format_tick(number: float) -> str:
    """Return a positive number with four significant digits, or rounded to an integer from 1,000, without an exponent.

    >>> format_tick(180000.0), format_tick(54.78), format_tick(0.00005)
    ('180,000', '54.78', '0.00005')
    """
    if number >= 1000:
        return f"{number:,.0f}"
    return np.format_float_positional(number, precision=4, fractional=False, trim="-")


def log_ticks(low: float, high: float) -> list[float]:
    """Return at least two ticks for a logarithmic axis. They enclose ``low`` and ``high``.

    >>> log_ticks(1, 12), log_ticks(54.8, 211)
    ([1.0, 2.0, 5.0, 10.0, 20.0], [40.0, 80.0, 120.0, 160.0, 200.0, 240.0])
    >>> log_ticks(0.2, 0.6000000000000001)
    [0.2, 0.3, 0.4, 0.5, 0.6]
    """
    low, high = min(low, high / NARROWEST), max(high, low * NARROWEST)
    powers = range(floor(log10(low)), ceil(log10(high)) + 1)
    ticks = [float(f"{digit}e{power}") for power in powers for digit in ((1, 2, 5) if len(powers) < 6 else (1,))]
    if high < 4 * low:
        values = MaxNLocator(6, steps=[1, 2, 4, 5, 10]).tick_values(low, high)
        ticks = [float(f"{value:.12g}") for value in values if value > 0]
    first = max(tick for tick in ticks if tick <= low * (1 + ROUNDING))
    last = min(tick for tick in ticks if tick >= high * (1 - ROUNDING))
    return [tick for tick in ticks if first <= tick <= last]


def scale_log(
    axes: Axes, name: Literal["x", "y"], ticks: Sequence[float], form: Callable[[float], str] = format_tick
) -> None:
    """Make an axis logarithmic, from the first to the last of its ``ticks``, which ``form`` formats."""
    axis, margin = axes.xaxis if name == "x" else axes.yaxis, (ticks[-1] / ticks[0]) ** 0.04
    axes.set(**{f"{name}scale": "log", f"{name}lim": (ticks[0] / margin, ticks[-1] * margin)})
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda number, _: form(number)))


def spread_labels(wanted: Sequence[float], apart: float) -> list[float]:
    """Return label heights near ``wanted`` without overlap. All numbers are fractions of the height of the axes.

    >>> [round(height, 2) for height in spread_labels([0.5, 0.02, 0.45], apart=0.1)]
    [0.5, 0.02, 0.4]
    """
    heights, above = list(wanted), 2.0
    falling = sorted(range(len(wanted)), key=lambda index: -wanted[index])
    for index in falling:
        above = heights[index] = min(wanted[index], above - apart)
    below = LOWEST - apart
    for index in reversed(falling):  # labels below the axes move up, with those above them
        below = heights[index] = max(heights[index], below + apart)
    return heights


def fit_left(axes: Axes) -> None:
    """Move the left edge of the axes so that the labels of the vertical axis are inside the figure."""
    figure, box = axes.figure, axes.get_position()
    labels = axes.yaxis.get_tightbbox(None)
    assert labels is not None
    left = box.x0 + max(0.0, 0.15 * figure.dpi - labels.x0) / figure.bbox.width
    axes.set_position((left, box.y0, box.x1 - left, box.height))


def titled_figure(title: str, subtitle: str, width: float, height: float) -> Figure:
    """Return an empty figure of ``width`` x ``height`` inches with a title and a subtitle, each cut to fit."""
    check_text("title", title, "Two racks")
    check_text("subtitle", subtitle, "of 16 hosts")
    figure = Figure(figsize=(width, height), dpi=DPI, facecolor=PAPER)
    for text, down, size, weight, color in ((title, 0.36, 13, "bold", INK), (subtitle, 0.6, 9.5, "normal", GREY)):
        look: dict[str, Any] = {"fontsize": size, "fontweight": weight, "color": color, "parse_math": False}
        figure.text(0.2 / width, 1 - down / height, fit_words(text, width - 0.4, size), **look)
    return figure


def fit_words(words: str, width: float, size: float) -> str:
    """Return ``words``, cut with an ellipsis if they could be wider than ``width`` inches at ``size`` points.

    >>> fit_words("a long title", 1.0, 13)
    'a long…'
    """
    most = int(width * 72 / (0.7 * size))
    return words if len(words) <= most else words[: most - 1].rstrip() + "…"


def clear_axes(axes: Axes, *, keep: Literal["x", "y", "both"] = "x") -> None:
    """Remove the frame and the tick marks of the axes, and draw a faint grid along ``keep``."""
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.grid(color=FAINT, linewidth=0.6, axis=keep)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, labelsize=9, labelcolor=GREY)


def label_times(axis: Axis, longest: float, most: int) -> None:
    """Label up to ``most`` ticks of a time axis, in the unit that suits ``longest`` (seconds)."""
    unit, size = time_unit(longest)
    axis.set_major_locator(MaxNLocator(most))
    axis.set_major_formatter(FuncFormatter(lambda time, _: f"{time / size:g} {unit}" if time else "0"))
    axis.set_label_text("time", color=INK, fontsize=9)


def render_figure(figure: Figure, kind: str = "png") -> bytes:
    """Return a figure as ``png``, ``svg`` or ``pdf`` bytes. Text is never parsed as a formula."""
    for text in figure.findobj(Text):
        text.set(parse_math=False)
    content = BytesIO()
    figure.savefig(content, format=kind, dpi=DPI)
    return content.getvalue()


def write_figure(figure: Figure, path: Path | str) -> None:
    """Write a matplotlib figure to a .png, .svg or .pdf file, atomically. Raise InputError for any other suffix.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_figure(titled_figure("nothing yet", "", 4.0, 3.0), Path(folder, "none.png"))
    ...     Path(folder, "none.png").stat().st_size > 1000
    True
    """
    path = check_file(path, "a plot")
    write_bytes(path, render_figure(figure, path.suffix[1:].lower()))
