"""A drawing area that draws its background once, and redraws only moving objects in each frame."""

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from matplotlib.artist import Artist
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from matplotlib.text import Text

from collectives.records.columns import Floats
from viz.layout.geometry import Box
from viz.style import INK, PAPER

AnArtist = TypeVar("AnArtist", bound=Artist)

DPI = 100
POINTS = 72 / DPI  # points in a pixel


class Canvas:
    """A drawing area of ``width`` by ``height`` pixels with y upwards and no visible axes."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI, facecolor=PAPER)
        self._agg: Any = FigureCanvasAgg(figure)  # partly untyped
        self.axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        self.axes.set(xlim=(0, width), ylim=(0, height))
        self.axes.set_axis_off()
        self._moving: list[Artist] = []

    def text(
        self,
        x: float,
        y: float,
        words: str,
        size: float = 11,
        color: str = INK,
        align: str = "left",
        bold: bool = False,
    ) -> Text:
        """Draw text vertically centered at y; ``size`` is in pixels."""
        weight = "bold" if bold else "normal"
        return self.axes.text(
            x, y, words, fontsize=size * POINTS, color=color, ha=align, va="center_baseline", fontweight=weight,
            fontfamily="DejaVu Sans", parse_math=False,
        )  # fmt: skip

    def text_width(self, text: Text) -> float:
        """Return the width of a text in pixels."""
        return float(text.get_window_extent(self._agg.get_renderer()).width)

    def fit(self, text: Text, width: float) -> None:
        """Shorten a text that is wider than ``width`` pixels, and end it with an ellipsis."""
        words = text.get_text()
        while words and self.text_width(text) > width:
            words = words[:-1]
            text.set_text(words.rstrip() + "…")

    def fill(self, box: Box, color: str, edge: str = "none", round_by: float = 3, line: float = 1) -> None:
        """Draw a filled box with round corners."""
        width, height = box.right - box.left, box.top - box.bottom
        style = f"round,pad=0,rounding_size={min(round_by, width / 2, height / 2)}"
        self.axes.add_patch(
            FancyBboxPatch(
                (box.left, box.bottom), width, height, boxstyle=style, facecolor=color, edgecolor=edge, linewidth=line
            )
        )

    def add_moving(self, artist: AnArtist) -> AnArtist:
        """Register an artist that is redrawn in each frame, on top of earlier ones, and return it."""
        artist.set_animated(True)
        self._moving.append(artist)
        return artist

    def keep_background(self) -> None:
        """Draw and save everything that does not move."""
        self._agg.draw()
        self._background = self._agg.copy_from_bbox(self._agg.figure.bbox)

    def frame(self) -> npt.NDArray[np.uint8]:
        """Return the current pixels: background and moving artists, shape [height, width, 3]."""
        self._agg.restore_region(self._background)
        for artist in self._moving:
            if artist.get_visible():
                self.axes.draw_artist(artist)
        return np.asarray(self._agg.buffer_rgba())[:, :, :3].copy()


class Bars:
    """A set of rectangles whose sizes and colors change in each frame.

    ``corners`` has the position of each rectangle's lower left corner; shape [bars, 2].
    """

    def __init__(self, canvas: Canvas, corners: Floats, colors: Sequence[str]) -> None:
        self._corners = corners
        self._collection = PolyCollection([], facecolors=colors, linewidths=0)
        canvas.axes.add_collection(self._collection, autolim=False)
        canvas.add_moving(self._collection)

    def resize(self, widths: Floats | float, heights: Floats | float) -> None:
        """Set the width and height of each rectangle, in pixels."""
        x, y = self._corners.T
        corners = ((x, y), (x + widths, y), (x + widths, y + heights), (x, y + heights))
        self._collection.set_verts([*np.stack([np.stack(corner, axis=1) for corner in corners], axis=1)])

    def recolor(self, colors: Sequence[str | tuple[str, float]]) -> None:
        """Set the color of each rectangle. A color may also be a tuple of a color and its opacity from 0 to 1."""
        self._collection.set_facecolor(colors)
