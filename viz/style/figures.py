"""What the still pictures share: paper with a title on it, and the file."""

from io import BytesIO
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from collectives.output_files import write_bytes
from viz.style.colours import FAINT, GREY, INK, PAPER

DPI = 150


def titled_figure(title: str, subtitle: str, width: float, height: float) -> Figure:
    """Return empty paper of so many inches with a title and a line below it, cut where they are too long."""
    figure = Figure(figsize=(width, height), dpi=DPI, facecolor=PAPER)
    left = 0.2 / width
    figure.text(
        left,
        1 - 0.36 / height,
        fit_words(title, width - 0.4, 13),
        fontsize=13,
        fontweight="bold",
        color=INK,
        parse_math=False,
    )
    figure.text(
        left, 1 - 0.6 / height, fit_words(subtitle, width - 0.4, 9.5), fontsize=9.5, color=GREY, parse_math=False
    )
    return figure


def fit_words(words: str, width: float, size: float) -> str:
    """Return words as they are, or cut with an ellipsis where at ``size`` points they may be wider than the inches.

    >>> fit_words("a long title", 1.0, 13)
    'a long…'
    """
    most = int(width * 72 / (0.7 * size))
    return words if len(words) <= most else words[: most - 1].rstrip() + "…"


def clear_axes(axes: Axes, *, keep: str = "x") -> None:
    """Leave of the axes only a faint grid across the axis that is kept: "x", "y" or "both"."""
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.grid(color=FAINT, linewidth=0.6, axis="both" if keep == "both" else "x" if keep == "x" else "y")
    axes.set_axisbelow(True)
    axes.tick_params(length=0, labelsize=9, labelcolor=GREY)


def render_figure(figure: Figure, kind: str = "png") -> bytes:
    """Return a figure as the bytes of a ``png``, ``svg`` or ``pdf``; no text in it is taken for a formula."""
    for text in figure.findobj(Text):
        text.set(parse_math=False)
    content = BytesIO()
    figure.savefig(content, format=kind, dpi=DPI)
    return content.getvalue()


def write_figure(figure: Figure, path: Path) -> None:
    """Write a figure as the suffix of ``path`` says, whole or not at all."""
    write_bytes(path, render_figure(figure, path.suffix[1:].lower()))
