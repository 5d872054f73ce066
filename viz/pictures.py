"""The picture of a Trace that a file name asks for."""

from pathlib import Path

from collectives.checks import check_path
from collectives.errors import InputError
from collectives.records.trace import Trace
from viz.film.animation import animate
from viz.space_time import draw_space_time

_WRITERS = {".gif": animate, ".png": draw_space_time}


def draw(trace: Trace, path: Path | str) -> None:
    """Write the picture that the suffix of ``path`` asks for: ``.gif`` the animation, ``.png`` ranks against time.

    Raises InputError for any other suffix and for a trace in which nothing happens.

    >>> from tempfile import TemporaryDirectory
    >>> from collectives import Message, Trace
    >>> trace = Trace("one message", "predicted", 2, elapsed=1.0, messages=[Message(0, 1, 0, 0, 1000, 0.0, 1.0)])
    >>> with TemporaryDirectory() as folder:
    ...     draw(trace, Path(folder, "one.png"))
    ...     Path(folder, "one.png").stat().st_size > 1000
    True
    """
    path = check_path("path", path)
    suffix = path.suffix.lower()
    if suffix not in _WRITERS:
        raise InputError(f"{path}: what to draw follows from the suffix: .gif or .png, not {suffix!r}")
    _WRITERS[suffix](trace, path)
