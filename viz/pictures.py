"""Draw a Trace in the format given by the file's suffix."""

from pathlib import Path

from collectives.records.trace import Trace
from viz.file_types import check_file
from viz.perfetto import write_perfetto
from viz.player.page import write_player
from viz.player.runs import PlayedRun


def _play(trace: Trace, path: Path) -> None:
    write_player(trace.title, [PlayedRun(trace, trace.title.partition("/")[2] or trace.title)], path)


def _animate(trace: Trace, path: Path) -> None:
    from viz.animation.animation import animate  # requires matplotlib

    animate(trace, path)


def _draw_still(trace: Trace, path: Path) -> None:
    from viz.space_time import space_time_figure  # requires matplotlib
    from viz.style import write_figure

    write_figure(space_time_figure(trace), path)


_WRITERS = {
    ".html": _play,
    ".gif": _animate,
    ".png": _draw_still,
    ".svg": _draw_still,
    ".pdf": _draw_still,
    ".json": write_perfetto,  # the suffix of .perfetto.json
}


def draw(trace: Trace, path: Path | str) -> None:
    """Write a trace as a picture, an animation or another format. The suffix of ``path`` selects the format.

    ``.html`` is an interactive player. ``.gif`` is an animation. ``.png``, ``.svg`` and ``.pdf`` are diagrams of ranks
    against time. ``.perfetto.json`` opens in ui.perfetto.dev and chrome://tracing. Raise InputError for any other
    suffix, or if the trace is empty.

    >>> from tempfile import TemporaryDirectory
    >>> from collectives import Message, Trace
    >>> trace = Trace("one message", "predicted", 2, elapsed=1.0, messages=[Message(0, 1, 0, 0, 1000, 0.0, 1.0)])
    >>> with TemporaryDirectory() as folder:
    ...     draw(trace, Path(folder, "one.png"))
    ...     Path(folder, "one.png").stat().st_size > 1000
    True
    """
    path = check_file(path, "a picture of messages")
    _WRITERS[path.suffix.lower()](trace, path)
