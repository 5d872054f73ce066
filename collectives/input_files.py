"""Read files: regular files of limited size. No output of a command overwrites its inputs."""

import json
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from collectives.errors import InputError
from collectives.quoting import quote

MEBIBYTE = 1 << 20


class FileBytes:
    """The maximum size of an input file in bytes, by kind. Larger files are rejected before they are read."""

    USUAL = 64 * MEBIBYTE
    PROGRAM = 4 * MEBIBYTE  # of Python
    SCENARIO = 4 * MEBIBYTE  # some 50,000 links
    GRAPH = 32 * MEBIBYTE  # some 200,000 links
    MODEL_PROFILE = 16 * MEBIBYTE
    TRACE = 256 * MEBIBYTE  # one of two million jittered messages has 60 MB
    RECORDING = 256 * MEBIBYTE
    PROFILER = 256 * MEBIBYTE  # packed or not; its text is in memory twice while it is read
    NCCL_TESTS = 100_000_000  # a thousand times what a sweep prints
    PRICES = 64 * MEBIBYTE
    SWEEP = 1024 * MEBIBYTE  # some four million predictions
    LOG = 1024 * MEBIBYTE
    EMBEDDED = 32 * MEBIBYTE  # a picture that becomes part of a notebook
    CHECKPOINT = 64 << 30


MADE_BY_THE_KERNEL = ("/proc/", "/sys/")
KINDS = {
    stat.S_IFDIR: "a directory", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}  # fmt: skip

_files_read: ContextVar[set[tuple[int, int]] | None] = ContextVar("files_read", default=None)  # device and inode


@contextmanager
def inputs_protected() -> Iterator[None]:
    """Record the files read inside the block, so that ``check_output`` refuses to overwrite them."""
    token = _files_read.set(set())
    try:
        yield
    finally:
        _files_read.reset(token)


def is_input(status: os.stat_result) -> bool:
    """Return whether the current ``inputs_protected`` block has read the file of this status, by any name."""
    return (status.st_dev, status.st_ino) in (_files_read.get() or ())


def check_input(path: Path, most_bytes: int = FileBytes.USUAL, will_change: bool = False) -> None:
    """Record a file that is about to be read, unless the command also appends to it.

    Raise InputError unless it exists, is regular, is outside ``/proc`` and ``/sys``, and has at most ``most_bytes``
    bytes.
    """
    try:
        status = path.stat()
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise InputError(f"{path}: {reason(error)}") from error
    kind = KINDS.get(stat.S_IFMT(status.st_mode))
    if kind:
        raise InputError(f"{path} is {kind}; a regular file is needed")
    if is_made_by_kernel(path):
        raise InputError(f"{path} is no file of a disk: the kernel makes it up; a regular file is needed")
    if status.st_size > most_bytes:
        size, most = (f"{bytes_ / MEBIBYTE:.4g} MiB" for bytes_ in (status.st_size, most_bytes))
        raise InputError(f"{path} is too large: {size}, {most} at most")
    files = _files_read.get()
    if files is not None and not will_change:
        files.add((status.st_dev, status.st_ino))


def read_bytes(path: Path, most_bytes: int = FileBytes.USUAL, will_change: bool = False) -> bytes:
    """Return the content of a regular file. Raise InputError as ``check_input`` does."""
    check_input(path, most_bytes, will_change)
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {reason(error)}") from error


def read_text(path: Path, most_bytes: int = FileBytes.USUAL, will_change: bool = False) -> str:
    """Return the UTF-8 text of a regular file, without a byte order mark. Raise InputError with the line.

    >>> read_text(Path("/dev/null"), 100)
    Traceback (most recent call last):
    collectives.errors.InputError: /dev/null is a device; a regular file is needed
    """
    try:
        return read_bytes(path, most_bytes, will_change).decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise InputError(f"{path}: line {line} is not UTF-8 text") from error


def parse_json(text: str, parse_constant: Callable[[str], Any] | None = None) -> Any:
    """Return the content of a JSON text. Raise ValueError for invalid JSON, RecursionError for deep nesting.

    A duplicate key is an error. ``parse_constant`` is as in ``json.loads``.

    >>> parse_json('{"ranks": 2, "ranks": 4}')
    Traceback (most recent call last):
    ...
    ValueError: key 'ranks' is there twice in one object
    """
    return json.loads(text, object_pairs_hook=_without_doubles, parse_constant=parse_constant)


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for key, number in Counter(key for key, _ in pairs).items() if number > 1)
        raise ValueError(f"key {quote(twice)} is there twice in one object")
    return found


def is_made_by_kernel(path: Path) -> bool:
    """Return whether a path is in ``/proc`` or ``/sys``."""
    return f"{os.path.realpath(path)}/".startswith(MADE_BY_THE_KERNEL)


def reason(error: OSError | ValueError) -> str:
    """Return the system's message, without number and file.

    >>> reason(FileNotFoundError(2, "No such file or directory", "x"))
    'No such file or directory'
    """
    return getattr(error, "strerror", None) or str(error)
