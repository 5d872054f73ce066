"""Files that are read: regular ones of sane size. What a command has read, no output of it overwrites."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from collectives.errors import InputError

MEBIBYTE = 1 << 20
MOST_BYTES = 64 * MEBIBYTE  # of a file that is read as a whole
BYTE_ORDER_MARK = "\ufeff"  # with which some programs of Windows begin a text
MADE_BY_THE_KERNEL = ("/proc", "/sys")
KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
FileId = tuple[int, int]  # device and inode: the same for every name and link of a file

_files_read: ContextVar[set[FileId] | None] = ContextVar("files_read", default=None)


@contextmanager
def inputs_protected() -> Iterator[None]:
    """Note the files read inside the block, so that ``check_output`` refuses to overwrite them."""
    token = _files_read.set(set())
    try:
        yield
    finally:
        _files_read.reset(token)


def is_input(status: os.stat_result) -> bool:
    """Return whether the file of this status was read inside the present ``inputs_protected``."""
    return (status.st_dev, status.st_ino) in (_files_read.get() or ())


def check_input(path: Path, most_bytes: int = MOST_BYTES) -> None:
    """Note a file that is about to be read.

    Raise InputError unless it is there, regular, no view of the kernel's like those in ``/proc``, and has no more than
    ``most_bytes`` bytes.
    """
    try:
        status = path.stat()
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise InputError(f"{path}: {reason(error)}") from error
    kind = next((kind for is_kind, kind in KINDS if is_kind(status.st_mode)), None)
    if kind:
        raise InputError(f"{path} is {kind}; a regular file is needed")
    if is_made_by_kernel(path, status):
        raise InputError(f"{path} is no file of a disk: the kernel makes it up; a regular file is needed")
    if status.st_size > most_bytes:
        size, most = (f"{bytes_ / MEBIBYTE:.4g} MiB" for bytes_ in (status.st_size, most_bytes))
        raise InputError(f"{path} is too large: {size}, {most} at most")
    files = _files_read.get()
    if files is not None:
        files.add((status.st_dev, status.st_ino))


def read_bytes(path: Path, most_bytes: int = MOST_BYTES) -> bytes:
    """Return the content of a regular file. Raise InputError, as ``check_input`` does."""
    check_input(path, most_bytes)
    try:
        with path.open("rb") as file:
            size = min(os.fstat(file.fileno()).st_size, most_bytes)  # ``read`` takes memory for all that it may read
            content = file.read(size + 1)
            if len(content) > size:
                content += file.read(most_bytes - size)
    except OSError as error:
        raise InputError(f"{path}: {reason(error)}") from error
    if len(content) > most_bytes:
        raise InputError(f"{path} grows while it is read; {most_bytes / MEBIBYTE:.4g} MiB at most")
    return content


def read_text(path: Path, most_bytes: int = MOST_BYTES) -> str:
    """Return the UTF-8 text of a regular file, without a byte order mark. Raise InputError, which names the line.

    >>> read_text(Path("/dev/null"), 100)
    Traceback (most recent call last):
    collectives.errors.InputError: /dev/null is a device; a regular file is needed
    """
    try:
        return read_bytes(path, most_bytes).decode().removeprefix(BYTE_ORDER_MARK)
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise InputError(f"{path}: line {line} is not UTF-8 text") from error


def read_kept_text(path: Path, most_bytes: int = MOST_BYTES) -> str:
    """Return the text of a file that the command keeps and will add to: reading it forbids no writing.

    Raise InputError, as ``read_text`` does.
    """
    files = _files_read.get()
    before = set(files or ())
    text = read_text(path, most_bytes)
    if files is not None:
        files &= before
    return text


def is_made_by_kernel(path: Path, status: os.stat_result) -> bool:
    """Return whether a file is one of ``/proc`` or ``/sys``, by its name or, whatever that is, by its device."""
    root, real = Path("/").stat().st_dev, os.path.realpath(path)
    for mount in MADE_BY_THE_KERNEL:
        if real == mount or real.startswith(f"{mount}/"):
            return True
        if status.st_dev != root and Path(mount).is_dir() and status.st_dev == Path(mount).stat().st_dev:
            return True
    return False


def reason(error: OSError | ValueError) -> str:
    """Return in words what the system says, without number and file.

    >>> reason(FileNotFoundError(2, "No such file or directory", "x"))
    'No such file or directory'
    """
    return getattr(error, "strerror", None) or str(error)
