"""The panel next to the network, which shows each rank's buffers, received bytes, or phase of the training step."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collectives.records.columns import Floats, Ints
from collectives.records.trace import Trace
from collectives.units import format_size
from viz.animation.canvas import Bars, Canvas
from viz.animation.motion import phases_at
from viz.layout.geometry import Box
from viz.player.buffers import COMPLETE, follow_buffers
from viz.style import FAINT, GREY, INK, PANE, chunk_colors, text_color


@dataclass(frozen=True)
class Filling:
    """The fraction of ranks that have contributed to each rank's copy of each chunk, over time."""

    times: npt.NDArray[np.float64]  # [changes]
    shares: npt.NDArray[np.float64]  # [changes, ranks, chunks], valid from the time of the change on
    complete: npt.NDArray[np.bool_]  # [changes, ranks, chunks]: whether the chunk has its final contents

    def at(self, time: float) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
        """Return the fractions and the ``complete`` flags at a time in seconds, each of shape [ranks, chunks]."""
        index = np.searchsorted(self.times, time, side="right") - 1
        return np.asarray(self.shares[index]), np.asarray(self.complete[index])


def find_filling(trace: Trace) -> Filling | None:
    """Return the buffer contents over time. Return None if the contents are unknown or the trace has no messages."""
    buffers = follow_buffers(trace) if len(trace.messages) else None
    if buffers is None:
        return None
    values = np.repeat(buffers.start[None], len(buffers.message) + 1, axis=0)
    for change, (cell, value) in enumerate(zip(buffers.cell, buffers.value, strict=True), start=1):
        values[change:, cell] = value
    count = np.bitwise_count if buffers.is_exact else np.asarray
    counts = count(values & (COMPLETE - 1))
    shape = (-1, trace.world_size, buffers.chunks)
    most = max(int(count(buffers.wanted).max()), 1)
    times = np.concatenate([[0.0], trace.messages.end[buffers.message]])
    return Filling(times, np.minimum(counts / most, 1.0).reshape(shape), (values & COMPLETE > 0).reshape(shape))


class StepCounter:
    """Finds the steps or messages that are in progress at a given time.

    In a training run, training steps are counted. In a collective, communication steps are counted if every rank sends
    in each step. Otherwise messages are counted, because ranks may be at different steps.

    >>> from collectives import Message
    >>> StepCounter(Trace("x", "predicted", 2, 3.0, [Message(0, 1, 0, 0, 10, 0.0, 3.0)])).describe(1.5)
    'message 1 of 1'
    """

    def __init__(self, trace: Trace) -> None:
        messages, phases = trace.messages, trace.spans.select(~trace.spans.named("reduce"))
        step, senders = messages.step, len(np.unique(messages.src * (1 << 40) + messages.step))
        in_step = senders == trace.world_size * len(np.unique(step))
        self.unit = "training step" if len(phases) else "step" if in_step else "message"
        if len(phases):
            self._begin, self._end = _merge(phases.step, phases.begin, phases.end)
        else:
            self._begin, self._end = _merge(step if in_step else np.arange(len(messages)), messages.begin, messages.end)
        reducing = trace.spans.select(trace.spans.named("reduce"))
        self._reducing = reducing.begin, reducing.end
        self._elapsed, self._failure = trace.elapsed, trace.failure

    def describe(self, time: float) -> str:
        """Return text such as ``step 3 of 14`` or ``messages 4 to 6 of 12``, counted from 1.

        If nothing is in progress, the text is ``reducing``, ``done``, a description of the failure, or empty.
        """
        now = np.flatnonzero((self._begin <= time) & (time < self._end))
        if not len(now):
            return self._describe_pause(time)
        low, high, total = int(now[0]) + 1, int(now[-1]) + 1, len(self._begin)
        return f"{self.unit} {low} of {total}" if low == high else f"{self.unit}s {low} to {high} of {total}"

    def _describe_pause(self, time: float) -> str:
        begin, end = self._reducing
        if ((begin <= time) & (time < end)).any():
            return "reducing"
        if self._failure is not None and time >= self._failure.at:
            stuck = len(self._failure.circle)
            return f"{stuck} ranks wait for each other" if stuck else f"rank {self._failure.rank} failed"
        return "done" if time >= self._elapsed else ""

    def marks(self) -> npt.NDArray[np.float64]:
        """Return the start of each step or message as a fraction of the run, to mark it on the progress bar.

        The result is empty if there are more than 40 steps or messages.
        """
        return self._begin / self._elapsed if len(self._begin) <= 40 else np.zeros(0)  # more would crowd


def _merge(number: Ints, begin: Floats, end: Floats) -> tuple[Floats, Floats]:
    """Merge intervals that have the same number. Return the merged starts and ends, sorted by start."""
    numbers, where = np.unique(number, return_inverse=True)
    first, last = np.full(len(numbers), np.inf), np.full(len(numbers), -np.inf)
    np.minimum.at(first, where, begin)
    np.maximum.at(last, where, end)
    order = np.lexsort((last, first))
    return first[order], last[order]


RECEIVED = chunk_colors(2)[1]

Panel = Callable[[float], None]  # shows the state at a time, in seconds


def add_panel(canvas: Canvas, trace: Trace, phases: dict[str, str], box: Box) -> Panel:
    """Draw a panel with one row per rank, and return a function that updates the panel to a time in seconds.

    The rows show training phases, the buffer contents of a collective or, if these are unknown, the received bytes. If
    the panel has no room for all ranks, nothing is drawn.
    """
    if not has_room(trace):
        return lambda time: None
    if set(phases) - {"reduce"}:
        return _phases_panel(canvas, trace, phases, box)
    known = find_filling(trace)
    if known and known.shares.shape[2] <= 16:  # chunks that have room side by side
        return _buffers_panel(canvas, known, box)
    return _received_panel(canvas, trace, box)


def has_room(trace: Trace) -> bool:
    """Return whether there is room for one row per rank."""
    return trace.world_size <= 24


def _rows(canvas: Canvas, ranks: int, box: Box, heading: str, caption: str, tallest: float) -> tuple[float, float]:
    """Draw the heading, the caption and the row labels. Return the row height and the top of the first row."""
    height = min(tallest, (box.top - box.bottom - 50) / ranks)
    top = box.top - 40
    canvas.text(box.left, box.top, heading, 12, INK, bold=True)
    canvas.text(box.left, box.top - 17, caption, 10, GREY)
    for rank in range(ranks):
        canvas.text(
            box.left + 46, top - 12 - (rank + 0.5) * height, f"rank {rank}", min(11, 0.85 * height), GREY, "right"
        )
    return height, top - 12


def _buffers_panel(canvas: Canvas, known: Filling, box: Box) -> Panel:
    """Draw a cell for each chunk of each rank. Contributions fill the cell, and it turns solid when complete."""
    ranks, chunks = known.shares.shape[1:]
    wide = min(30.0, (box.right - box.left - 52) / chunks)
    height, top = _rows(canvas, ranks, box, "Buffers", "by chunk; solid when complete", min(30.0, 1.5 * wide))
    left = box.left + 52
    colors = chunk_colors(chunks)
    for chunk, color in enumerate(colors):
        at = left + chunk * wide
        canvas.fill(Box(at + 1, top + 2, at + wide - 1, top + 15), color)
        middle = left + (chunk + 0.5) * wide
        canvas.text(middle, top + 8.5, str(chunk), min(10, 0.55 * wide), text_color(color), "center", bold=True)
    corners = np.array([(left + c * wide + 1, top - (r + 1) * height + 1) for r in range(ranks) for c in range(chunks)])
    for x, y in corners:
        canvas.fill(Box(x, y, x + wide - 2, y + height - 2), PANE, round_by=0)
    bars = Bars(canvas, corners, colors * ranks)

    def show(time: float) -> None:
        shares, complete = known.at(time)
        bars.resize(wide - 2, (height - 2) * shares.ravel())
        bars.recolor(
            [(color, 1.0 if full else 0.5) for color, full in zip(colors * ranks, complete.ravel(), strict=True)]
        )

    return show


def _received_panel(canvas: Canvas, trace: Trace, box: Box) -> Panel:
    """Draw a bar per rank that grows with the bytes received."""
    messages = trace.messages
    dst, nbytes, begin, end = messages.dst, messages.nbytes, messages.begin, messages.end
    total = np.bincount(dst, nbytes, trace.world_size)
    heading = f"up to {format_size(float(total.max()))} per rank"
    height, top = _rows(canvas, trace.world_size, box, "Received so far", heading, 24)
    corners = np.array([(box.left + 54, top - (r + 1) * height + 0.2 * height) for r in range(trace.world_size)])
    room = box.right - box.left - 54
    for x, y in corners:
        canvas.fill(Box(x, y, x + room, y + 0.6 * height), PANE, round_by=0)
    bars = Bars(canvas, corners, [RECEIVED])

    def show(time: float) -> None:
        part = np.where(time >= end, 1.0, np.clip((time - begin) / np.maximum(end - begin, 1e-12), 0, 1))
        got = np.bincount(dst, nbytes * part, trace.world_size)
        bars.resize(room * got / (total.max() or 1.0), 0.6 * height)

    return show


def _phases_panel(canvas: Canvas, trace: Trace, phases: dict[str, str], box: Box) -> Panel:
    """Draw a box per rank in the color of its phase, with the phase's name."""
    height, top = _rows(canvas, trace.world_size, box, "Phase of each rank", "of a training step", 26)
    corners = np.array([(box.left + 54, top - (r + 1) * height + 1) for r in range(trace.world_size)])
    room = box.right - box.left - 54
    bars = Bars(canvas, corners, [FAINT])
    bars.resize(room, height - 2)
    middles = [(x + room / 2, y + height / 2 - 1) for x, y in corners]
    words = [canvas.add_moving(canvas.text(x, y, "", min(11, 0.7 * height), align="center")) for x, y in middles]

    def show(time: float) -> None:
        now = phases_at(trace, time)
        colors = [phases[now[rank]] if rank in now else FAINT for rank in range(trace.world_size)]
        bars.recolor(colors)
        for rank, word in enumerate(words):
            word.set(text=now.get(rank, "waiting"), color=text_color(colors[rank]) if rank in now else GREY)

    return show
