"""Write a trace as an animated GIF in which messages move over a drawing of the network."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from math import isfinite
from pathlib import Path
from textwrap import wrap

import numpy as np
import numpy.typing as npt
from matplotlib.patches import Rectangle
from PIL import Image

from collectives.checks import check_number
from collectives.errors import InputError
from collectives.output_files import write_bytes
from collectives.quoting import quote
from collectives.records.trace import Trace
from collectives.units import format_time
from viz.animation.canvas import Bars, Canvas
from viz.animation.motion import follow_messages, frame_times
from viz.animation.panels import StepCounter, add_panel, has_room
from viz.animation.scene import MOST_DOTS, Scene
from viz.captions import (
    check_something_happens,
    describe_busiest_link,
    describe_failure,
    describe_trace,
    format_clock,
    is_stuck_at_once,
)
from viz.file_types import check_file
from viz.layout.geometry import Box
from viz.layout.layout import lay_out
from viz.style import FAINT, GREY, INK, PAPER, WRONG, chunk_colors, phase_colors, text_color, use_color

Pixels = npt.NDArray[np.uint8]  # [height, width, 3]
Progress = Callable[[int, int], object]
Codes = npt.NDArray[np.int64]  # red, green and blue in one number

EXACT, MIXED = 191, 64  # palette entries: the most frequent colors, and mixtures of the others
UNCHANGED = EXACT + MIXED  # the transparent palette entry, which shows the previous frame
SAMPLES = 9  # frames that the palette is made from


def encode_gif(frame: Callable[[int], Pixels], count: int, fps: float, hold: float) -> bytes:
    """Return a looping GIF of ``count`` frames at ``fps`` frames per second.

    ``frame(index)`` returns the pixels of a frame. It is called once per frame, in any order. The last frame stays for
    ``hold`` seconds.

    >>> encode_gif(lambda index: np.full((4, 4, 3), index, np.uint8), count=2, fps=10, hold=1)[:6]
    b'GIF89a'
    """
    samples = np.unique(np.linspace(0, count - 1, min(SAMPLES, count)).round().astype(int)).tolist()
    drawn = {index: frame(index) for index in samples}
    palette = _palette([*drawn.values()])
    pictures = _changes((drawn.pop(index) if index in drawn else frame(index) for index in range(count)), palette)
    durations = [round(100 / fps) * 10] * (count - 1) + [round(hold * 1000)]  # a GIF has hundredths of a second
    content = BytesIO()
    next(pictures).save(
        content, "GIF", save_all=True, append_images=pictures, duration=durations, loop=0, disposal=1,
        transparency=UNCHANGED, optimize=False,
    )  # fmt: skip
    return content.getvalue()


@dataclass(frozen=True)
class _Palette:
    """A palette of at most 255 colors. Frequent colors are exact, and all others are approximated."""

    image: Image.Image
    exact: Codes  # sorted
    entries: npt.NDArray[np.uint8]  # palette indices of the exact colors

    def indices(self, pixels: Pixels) -> npt.NDArray[np.uint8]:
        """Return the palette index of each pixel's color, or of a similar color if the palette does not contain it."""
        near = np.asarray(Image.fromarray(pixels).quantize(palette=self.image, dither=Image.Dither.NONE))
        codes = _codes(pixels)
        place = np.minimum(np.searchsorted(self.exact, codes), len(self.exact) - 1)
        return np.where(self.exact[place] == codes, self.entries[place], near)


def _codes(pixels: Pixels) -> Codes:
    red, green, blue = (pixels[..., channel].astype(np.int64) for channel in range(3))
    return red << 16 | green << 8 | blue


def _palette(frames: Sequence[Pixels]) -> _Palette:
    colors, times = np.unique(np.concatenate([_codes(frame).ravel() for frame in frames]), return_counts=True)
    by_use = colors[np.argsort(-times, kind="stable")]
    channels = np.stack([by_use >> 16, by_use >> 8 & 255, by_use & 255], axis=1).astype(np.uint8)
    exact, order = by_use[:EXACT], np.argsort(by_use[:EXACT])
    entries, rest = channels[:EXACT], channels[EXACT:]
    if len(rest):
        mixed = Image.fromarray(rest[np.newaxis]).quantize(MIXED).getpalette() or []
        entries = np.concatenate([entries, np.array(mixed, np.uint8).reshape(-1, 3)[:MIXED]])
    image = Image.new("P", (1, 1))
    image.putpalette(np.resize(entries, (UNCHANGED, 3)).tobytes())
    return _Palette(image, exact[order], order.astype(np.uint8))


def _changes(frames: Iterable[Pixels], palette: _Palette) -> Iterator[Image.Image]:
    """Yield the complete first frame, and then only the changed pixels of each later frame."""
    before: npt.NDArray[np.uint8] | None = None
    table = [*(palette.image.getpalette() or [])[: 3 * UNCHANGED], 255, 255, 255]
    for pixels in frames:
        now = palette.indices(pixels)
        picture = Image.fromarray(now if before is None else np.where(now == before, np.uint8(UNCHANGED), now))
        picture.putpalette(table)
        before = now
        yield picture


WIDTH, HEIGHT = 720, 480
LINE = 104  # characters of small text that fit side by side
HOLD = 2.0  # seconds that the last frame stays
CHUNK_ZERO = chunk_colors(1)[0]
BAR = Box(24, 22, WIDTH - 24, 30)


def animate(
    trace: Trace, path: Path | str, *, seconds: float = 10, fps: float = 12, progress: Progress | None = None
) -> None:
    """Write a GIF of 720 x 480 pixels in which messages move over a drawing of the network.

    The animation lasts ``seconds`` seconds, and then shows the last frame for two more seconds. Each message appears in
    at least one frame, unless more than 256 are in flight at once. ``progress(done, total)`` is called after each frame
    with the number of finished frames and the total number of frames.

    Raise InputError if the suffix is not ``.gif``, the trace is empty, or ``fps`` is not positive or exceeds 50. Also
    raise InputError if the animation would have fewer than 2 or more than 600 frames.

    >>> from tempfile import TemporaryDirectory
    >>> from collectives import Message
    >>> trace = Trace("one message", "predicted", 2, elapsed=1.0, messages=[Message(0, 1, 0, 0, 1000, 0.0, 1.0)])
    >>> with TemporaryDirectory() as folder:
    ...     animate(trace, Path(folder, "one.gif"), seconds=1, fps=2)
    ...     Path(folder, "one.gif").stat().st_size > 1000
    True
    """
    path = check_file(path, "an animation")
    if progress is not None and not callable(progress):
        raise InputError(f"progress must be a function of two integers, not {quote(progress)}")
    count = _frame_count(seconds, fps)
    animation, drawn = Animation(trace, count, fps), itertools.count(1)

    def frame(index: int) -> Pixels:
        pixels = animation.frame(index)
        if progress is not None:
            progress(next(drawn), count)
        return pixels

    write_bytes(path, encode_gif(frame, count, fps, HOLD))


def _frame_count(seconds: float, fps: float) -> int:
    """Return the number of frames. Raise InputError unless there are 2 to 600 frames and 0 < ``fps`` <= 50."""
    check_number("fps", fps)
    check_number("seconds", seconds)
    if not (0 < fps <= 50):
        raise InputError(f"fps must be above 0 and at most 50, not {fps}")
    if not (seconds > 0 and 2 <= round(seconds * fps) <= 600):
        raise InputError(f"an animation must have 2 to 600 frames, not {round(seconds * fps)}; change seconds or fps")
    return round(seconds * fps)


class Animation:
    """Renders the frames of an animation. Frames can be requested in any order."""

    def __init__(self, trace: Trace, count: int, fps: float) -> None:
        check_something_happens(trace)
        self._trace, self._fps = trace, fps
        self._canvas = Canvas(WIDTH, HEIGHT)
        phases = phase_colors(list(dict.fromkeys(span.name for span in trace.spans)))
        area = Box(62, 118, 432 if has_room(trace) else WIDTH - 62, 372)
        layout = lay_out(trace, area)
        self._motion = follow_messages(trace, layout, frame_times(trace, count))
        self._progress = StepCounter(trace)
        self._draw_heading()
        self._scene = Scene(self._canvas, trace, layout, self._motion, phases)
        self._panel = add_panel(self._canvas, trace, phases, Box(484, 76, WIDTH - 24, 388))
        self._draw_footer()
        self._draw_legend(phases)
        self._canvas.keep_background()

    def _draw_heading(self) -> None:
        draw, trace = self._canvas, self._trace
        draw.fit(draw.text(24, 456, trace.title, 18, INK, bold=True), 480)
        draw.fit(draw.text(24, 434, describe_trace(trace), 11, GREY), 560)
        if trace.failure is None:
            draw.fit(draw.text(24, 417, describe_busiest_link(trace), 11, GREY), 640)
        else:
            first, *more = wrap(describe_failure(trace), LINE)
            draw.text(24, 417, first, 11, WRONG)
            draw.fit(draw.text(24, 402, " ".join(more), 11, WRONG), WIDTH - 48)
        self._clock = draw.add_moving(draw.text(WIDTH - 24, 456, "", 20, INK, "right", bold=True))
        if not is_stuck_at_once(trace):
            draw.text(WIDTH - 24, 434, f"of {format_time(trace.elapsed)}", 11, GREY, "right")

    def _draw_footer(self) -> None:
        draw = self._canvas
        draw.fill(BAR, FAINT)
        for share in self._progress.marks():
            draw.axes.plot([BAR.at(share, 0)[0]] * 2, [BAR.bottom - 4, BAR.bottom - 1], color=GREY, linewidth=0.8)
        if self._trace.failure is not None:
            x = BAR.at(min(self._trace.failure.at / self._trace.elapsed, 1.0), 0)[0]
            draw.axes.plot([x, x], [BAR.bottom - 6, BAR.top + 6], color=WRONG, linewidth=2.5)
        self._bar = Bars(draw, np.array([(BAR.left, BAR.bottom)]), [INK])
        self._step = draw.add_moving(draw.text(BAR.left, 46, "", 12, INK, bold=True))
        self._speed = draw.add_moving(draw.text(WIDTH / 2 - 20, 46, "", 11, GREY, "center"))
        if len(self._trace.messages) and any(isfinite(link.bandwidth) for link in self._trace.links):
            left = WIDTH - 124
            draw.text(left - 34, 46, "link use  0", 11, GREY, "center")
            for index in range(15):
                color = use_color(index / 14)
                draw.axes.add_patch(Rectangle((left + 4 * index, 42), 4.2, 8, color=color, linewidth=0))
            draw.text(WIDTH - 24, 46, "100 %", 11, GREY, "right")

    def _draw_legend(self, phases: dict[str, str]) -> None:
        draw, x, y = self._canvas, 30.0, 72
        if len(self._trace.messages):
            draw.fill(Box.around(x, y, 7), CHUNK_ZERO, round_by=7)
            draw.text(x, y, "k" if self._scene.numbered else "", 9, text_color(CHUNK_ZERO), "center", bold=True)
            sizes = self._trace.messages.nbytes.tolist()
            words = "message with chunk k" if self._scene.numbered else "message, colored by chunk"
            words += ", larger with more bytes" if max(sizes) > 1.1 * min(sizes) else ""
            x += 28 + draw.text_width(draw.text(x + 13, y, words, 11, GREY))
        for name, color in phases.items():
            draw.fill(Box.around(x, y, 5), PAPER, color, round_by=5, line=3)
            x += 28 + draw.text_width(draw.text(x + 11, y, name, 11, GREY))

    def frame(self, index: int) -> Pixels:
        """Return one frame, shape [480, 720, 3]."""
        time = float(self._motion.times[index])
        in_flight = self._scene.show(index)
        self._panel(time)
        if not is_stuck_at_once(self._trace):
            self._clock.set_text(format_clock(time, self._trace.elapsed))
            here = min(index, len(self._motion.times) - 2)
            step = float(self._motion.times[here + 1] - self._motion.times[here])
            words = f"1 s of animation = {format_time(step * self._fps)}"
            if in_flight > MOST_DOTS:
                words = f"showing {MOST_DOTS} of {in_flight} messages in flight"
            self._speed.set_text(words)
        self._bar.resize((BAR.right - BAR.left) * min(time / self._trace.elapsed, 1.0), BAR.top - BAR.bottom)
        self._step.set_text(self._progress.describe(time))
        return self._canvas.frame()
