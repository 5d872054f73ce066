"""The panel beside the cluster in an animation: what buffers hold, bytes received, or the phase of each rank."""

from collections.abc import Callable

import numpy as np

from collectives.records.trace import Trace
from collectives.units import format_size
from viz.film.canvas import Bars, Canvas
from viz.film.contributions import Contributions, find_contributions
from viz.film.motion import phases_at
from viz.layout.geometry import Box
from viz.style.colours import FAINT, GREY, INK, PANE, chunk_colours, text_colour

RECEIVED = chunk_colours(2)[1]
MOST_RANKS, MOST_CHUNKS = 24, 16

Panel = Callable[[float], None]  # shows the state at a time, in seconds


def add_panel(canvas: Canvas, trace: Trace, phases: dict[str, str], box: Box) -> Panel:
    """Draw the panel that suits the trace: buffers of a collective, phases of a training, else bytes received.

    Returns the function that moves it to a time; it does nothing where there is no room for a panel.
    """
    if not has_room(trace):
        return lambda time: None
    if set(phases) - {"reduce"}:
        return _phases_panel(canvas, trace, phases, box)
    known = find_contributions(trace)
    if known and known.shares.shape[2] <= MOST_CHUNKS:
        return _buffers_panel(canvas, known, box)
    return _received_panel(canvas, trace, box)


def has_room(trace: Trace) -> bool:
    """Return whether there is room for a row per rank."""
    return trace.world_size <= MOST_RANKS


def _rows(canvas: Canvas, ranks: int, box: Box, heading: str, caption: str, tallest: float) -> tuple[float, float]:
    """Write the heading, the caption and a name per row. Return the height of a row and the top of the first."""
    height = min(tallest, (box.top - box.bottom - 50) / ranks)
    top = box.top - 40
    canvas.text(box.left, box.top, heading, 12, INK, bold=True)
    canvas.text(box.left, box.top - 17, caption, 10, GREY)
    for rank in range(ranks):
        canvas.text(
            box.left + 46, top - 12 - (rank + 0.5) * height, f"rank {rank}", min(11, 0.85 * height), GREY, "right"
        )
    return height, top - 12


def _buffers_panel(canvas: Canvas, known: Contributions, box: Box) -> Panel:
    """Draw a cell for each chunk of each rank that fills up with whose data is in it; solid once it is as promised."""
    ranks, chunks = known.shares.shape[1:]
    wide = min(30.0, (box.right - box.left - 52) / chunks)
    height, top = _rows(
        canvas, ranks, box, "In the buffers", "by chunk; solid once it is the result", min(30.0, 1.5 * wide)
    )
    left = box.left + 52
    colours = chunk_colours(chunks)
    for chunk, colour in enumerate(colours):
        canvas.box(left + chunk * wide + 1, top + 2, wide - 2, 13, colour)
        middle = left + (chunk + 0.5) * wide
        canvas.text(middle, top + 8.5, str(chunk), min(10, 0.55 * wide), text_colour(colour), "center", bold=True)
    corners = np.array([(left + c * wide + 1, top - (r + 1) * height + 1) for r in range(ranks) for c in range(chunks)])
    for x, y in corners:
        canvas.box(x, y, wide - 2, height - 2, PANE, round_by=0)
    bars = Bars(canvas, corners, colours * ranks)

    def show(time: float) -> None:
        shares, complete = known.at(time)
        bars.resize(wide - 2, (height - 2) * shares.ravel())
        bars.recolour(
            [(colour, 1.0 if full else 0.5) for colour, full in zip(colours * ranks, complete.ravel(), strict=True)]
        )

    return show


def _received_panel(canvas: Canvas, trace: Trace, box: Box) -> Panel:
    """Draw a bar per rank that grows with the bytes it has received."""
    messages = trace.messages
    dst, nbytes, begin, end = messages.dst, messages.nbytes, messages.begin, messages.end
    total = np.bincount(dst, nbytes, trace.world_size)
    heading = f"up to {format_size(float(total.max()))} a rank"
    height, top = _rows(canvas, trace.world_size, box, "Received so far", heading, 24)
    corners = np.array([(box.left + 54, top - (r + 1) * height + 0.2 * height) for r in range(trace.world_size)])
    room = box.right - box.left - 54
    for x, y in corners:
        canvas.box(x, y, room, 0.6 * height, PANE, round_by=0)
    bars = Bars(canvas, corners, [RECEIVED])

    def show(time: float) -> None:
        part = np.where(time >= end, 1.0, np.clip((time - begin) / np.maximum(end - begin, 1e-12), 0, 1))
        got = np.bincount(dst, nbytes * part, trace.world_size)
        bars.resize(room * got / (total.max() or 1.0), 0.6 * height)

    return show


def _phases_panel(canvas: Canvas, trace: Trace, phases: dict[str, str], box: Box) -> Panel:
    """Draw a box per rank in the colour of the phase it is in, with the phase's name."""
    height, top = _rows(canvas, trace.world_size, box, "What each rank does", "phases of a training step", 26)
    corners = np.array([(box.left + 54, top - (r + 1) * height + 1) for r in range(trace.world_size)])
    room = box.right - box.left - 54
    bars = Bars(canvas, corners, [FAINT])
    bars.resize(room, height - 2)
    middles = [(x + room / 2, y + height / 2 - 1) for x, y in corners]
    words = [canvas.add_moving(canvas.text(x, y, "", min(11, 0.7 * height), align="center")) for x, y in middles]

    def show(time: float) -> None:
        now = phases_at(trace, time)
        colours = [phases[now[rank]] if rank in now else FAINT for rank in range(trace.world_size)]
        bars.recolour(colours)
        for rank, word in enumerate(words):
            word.set(text=now.get(rank, "waiting"), color=text_colour(colours[rank]) if rank in now else GREY)

    return show
