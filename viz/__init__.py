"""Pictures and films of a Trace, and the report of a comparison. Drawing libraries load when something is drawn."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from collectives.errors import InputError
from collectives.records.trace import Trace

_LATER = (".html", ".mp4", ".json")


def draw(trace: Trace, path: Path | str) -> None:
    """Write the picture that the suffix asks for: ``.gif`` the animation, ``.png`` the space-time picture.

    Raises InputError for any other suffix and for a trace in which nothing happens.
    """
    path = Path(path)
    drawings = {".gif": animate, ".png": spacetime}
    suffix = path.suffix.lower()
    if suffix in _LATER:
        raise InputError(f"{path}: not yet: {suffix} cannot be written so far; name a file that ends in .gif or .png")
    if suffix not in drawings:
        raise InputError(f"{path}: what to draw follows from the suffix: .gif or .png, not {suffix!r}")
    drawings[suffix](trace, path)


def animate(trace: Trace, path: Path | str, *, seconds: float = 10, fps: float = 12) -> None:
    """Write a GIF of the messages moving over the topology; see ``viz.film.animation.animate``."""
    from viz.film import animation

    animation.animate(trace, path, seconds=seconds, fps=fps)


def spacetime(trace: Trace, path: Path | str) -> None:
    """Write a PNG of ranks over time; see ``viz.space_time.spacetime``."""
    from viz import space_time

    space_time.spacetime(trace, path)


def report(comparison: Mapping[str, Any], pictures: Mapping[str, bytes | Path], path: Path | str) -> None:
    """Write a report as one HTML file; see ``viz.report.document.report``."""
    from viz.report import document

    document.report(comparison, pictures, path)
