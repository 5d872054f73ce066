"""The file types that each kind of picture supports."""

from importlib.util import find_spec
from pathlib import Path

from collectives.checks import check_path
from collectives.errors import InputError
from collectives.output_files import check_output
from collectives.removed import FILE_SUFFIXES, describe_removed

FILE_TYPES = {
    "an animation": (".gif",),
    "a player": (".html",),
    "a picture of messages": (".html", ".gif", ".png", ".svg", ".pdf", ".perfetto.json"),
    "a trace for Perfetto": (".perfetto.json",),
    "a plot": (".png", ".svg", ".pdf"),
    "a report": (".html", ".htm"),
}
PLAIN_TYPES = (".html", ".perfetto.json")  # written without matplotlib, except a report


def check_file(path: Path | str, what: str) -> Path:
    """Check that an output file can be written, and return its path. Call this before a long computation.

    ``what`` is the kind of output, such as "a plot"; see ``FILE_TYPES``. Raise InputError if the kind does not support
    the suffix, the file is not writable, or matplotlib is required but not installed.

    >>> check_file("film.avi", "an animation")
    Traceback (most recent call last):
    collectives.errors.InputError: film.avi: an animation is written as .gif, not '.avi'
    """
    path = check_path("path", path)
    suffixes = FILE_TYPES[what]
    if path.suffix.lower() == ".mp4" and ".gif" in suffixes:
        raise InputError(f"{path}: {describe_removed(FILE_SUFFIXES, '.mp4')}")
    if not any(path.name.lower().endswith(suffix) and path.stem for suffix in suffixes) or not path.suffix:
        raise InputError(f"{path}: {what} is written as {' or '.join(suffixes)}, not {path.suffix!r}")
    check_output(path)
    if (what == "a report" or not path.name.lower().endswith(PLAIN_TYPES)) and find_spec("matplotlib") is None:
        raise InputError(f"{path}: {what} requires matplotlib: pip install 'ringlab[plots]'")
    return path
