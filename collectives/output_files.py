"""Files that are written: regular ones whole or not at all; pipes and devices are written to and stay what they are.

A symbolic link stays, and what it leads to is written. Nothing that the same command has read is overwritten.
"""

import errno
import os
import secrets
import select
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

from collectives.errors import InputError
from collectives.input_files import KINDS, FileId, is_input, is_made_by_kernel, reason

MOST_LINKS = 40  # that lead to a file, as Linux has it
WAIT_FOR_READER = 2.0  # seconds until a pipe that nobody has opened for reading is given up
WAIT_FOR_ROOM = 4.0  # seconds until one from which nobody reads is
TEMPORARY = ".ringlab-"  # how the name of a file begins that is not yet whole
PIECE = 4096  # bytes: what a pipe that has room takes at once, PIPE_BUF

_open_pipes: ContextVar[dict[FileId, int] | None] = ContextVar("open_pipes", default=None)


@contextmanager
def pipes_kept_open() -> Iterator[None]:
    """Keep each pipe open that ``check_output`` finds a reader of inside the block, until it is written.

    A pipe that is opened and closed again tells its reader that there is no more to come.
    """
    pipes: dict[FileId, int] = {}
    token = _open_pipes.set(pipes)
    try:
        yield
    finally:
        _open_pipes.reset(token)
        for handle in pipes.values():
            os.close(handle)


def check_output(path: Path | str) -> None:
    """Raise InputError for a file that cannot be written: to be refused before there is anything to write.

    Refused are directories, disks, sockets, what the kernel makes up, files that the same command has read, what
    permissions forbid and, inside ``pipes_kept_open``, pipes that nobody reads. Nothing is created or changed.

    >>> check_output("/")
    Traceback (most recent call last):
    collectives.errors.InputError: / is a directory; name a file to write
    """
    try:
        target = _follow(Path(path))
        if not isinstance(target, int):
            _check_target(Path(path), target)
    except InputError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise InputError(f"{path} cannot be written: {reason(error)}") from error


def _check_target(path: Path, target: Path) -> None:
    """Raise InputError or OSError unless ``target``, which ``path`` leads to, can be written."""
    try:
        status = target.stat()
    except FileNotFoundError:
        if path.is_symlink() and not target.parent.exists():
            raise FileNotFoundError(errno.ENOENT, f"it is a link to {target}, and there is no such folder") from None
        _check_folder(target.parent)
        return
    if stat.S_ISDIR(status.st_mode):
        raise InputError(f"{path} is a directory; name a file to write")
    if stat.S_ISBLK(status.st_mode) or stat.S_ISSOCK(status.st_mode):
        kind = next(kind for is_kind, kind in KINDS if is_kind(status.st_mode))
        raise InputError(f"{path} is {kind}; name a file to write")
    if is_input(status):
        raise InputError(f"{path} is read by this command; name another file to write")
    if not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, "Permission denied")
    if stat.S_ISREG(status.st_mode):
        _check_folder(target.parent)
    if stat.S_ISFIFO(status.st_mode):
        _keep_open(path, target, status)


def _keep_open(path: Path, target: Path, status: os.stat_result) -> None:
    """Open a pipe for its writing later, inside ``pipes_kept_open``. Raise InputError for one that nobody reads."""
    pipes, number = _open_pipes.get(), (status.st_dev, status.st_ino)
    if pipes is None or number in pipes:
        return
    try:
        pipes[number] = _open_stream(target)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        raise InputError(f"{path} is a pipe that nobody reads; open it for reading first") from error


def _open_kept(target: Path) -> int:
    """Return the number of a pipe that was kept open, or of a pipe or device that is opened. Raises OSError."""
    status = target.stat()
    pipes = _open_pipes.get() or {}
    handle = pipes.pop((status.st_dev, status.st_ino), None)
    return _open_stream(target) if handle is None else handle


def _check_folder(folder: Path) -> None:
    """Raise OSError unless files can be made in ``folder``, or the folder itself, in one that is there."""
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not there.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, f"{there} is no directory")
    if is_made_by_kernel(there, there.stat()):
        raise OSError(errno.EACCES, f"the kernel makes up what is in {there}")
    if not os.access(there, os.W_OK | os.X_OK):
        is_read_only = os.statvfs(there).f_flag & os.ST_RDONLY
        why = "is on a read-only file system" if is_read_only else "is a directory in which you may not write"
        raise PermissionError(errno.EACCES, f"{there} {why}")


def write_bytes(path: Path | str, content: bytes | memoryview, durable: bool = False) -> None:
    """Write ``content`` to ``path``; of a regular file a reader sees the old one or the new one. Make its folder.

    With ``durable`` a regular file and its name are on the disk when this returns, and outlive a loss of power. Raises
    InputError as ``check_output`` does, and OSError that names ``path`` where the system fails.
    """
    check_output(path)
    try:
        target = _follow(Path(path))
        if isinstance(target, int):
            _write_stream(os.dup(target), content, patience=None)
        elif target.exists() and not target.is_file():
            _write_stream(_open_kept(target), content, WAIT_FOR_ROOM)
        else:
            _replace(target, content, durable)
    except OSError as error:
        raise OSError(error.errno, reason(error), str(path)) from error


def write_text(path: Path | str, content: str, durable: bool = False) -> None:
    """Write text to ``path`` as UTF-8, as ``write_bytes`` does; what UTF-8 cannot say is escaped.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_text(Path(folder, "new", "a.txt"), "whole")
    ...     Path(folder, "new", "a.txt").read_text()
    'whole'
    """
    write_bytes(path, content.encode(errors="backslashreplace"), durable)


def append_text(path: Path | str, content: str) -> None:
    """Add text to the end of a regular file, or of a new one, in one piece: what was there stays.

    Raises InputError as ``check_output`` does, and OSError that names ``path`` where the system fails.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     for line in ("one", "two"):
    ...         append_text(Path(folder, "a.txt"), f"{line};")
    ...     Path(folder, "a.txt").read_text()
    'one;two;'
    """
    check_output(path)
    left = memoryview(content.encode(errors="backslashreplace"))
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        try:
            while left:
                left = left[os.write(handle, left) :]
        finally:
            os.close(handle)
    except OSError as error:
        raise OSError(error.errno, reason(error), str(path)) from error


def _follow(path: Path) -> Path | int:
    """Return what is written for ``path``: the file at the end of its links, or the number of a file that is open.

    ``/dev/stdout`` and ``/dev/fd/63`` are open: to replace the file behind them would leave the one that is open.
    """
    ours = os.path.realpath("/proc/self/fd")
    for _ in range(MOST_LINKS):
        folder = os.path.realpath(path.parent)
        if folder == ours and path.name.isdecimal():
            os.fstat(int(path.name))
            return int(path.name)
        if not path.is_symlink():
            path.exists()  # raises for a name that is too long
            return path
        path = Path(folder, path.readlink())
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _replace(path: Path, content: bytes | memoryview, durable: bool) -> None:
    """Write a new file beside ``path``, with its owner and permissions, and put it in its place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.parent / f"{TEMPORARY}{secrets.token_hex(8)}"
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            if path.exists():
                status = path.stat()
                with suppress(OSError):
                    os.fchown(handle, status.st_uid, status.st_gid)
                os.fchmod(handle, status.st_mode & 0o777)
            file.write(content)
            if durable:  # before it has its name: no name ever leads to half a file
                file.flush()
                os.fsync(handle)
        new.replace(path)
        if durable:
            sync_folder(path.parent)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Have the names in ``folder`` on the disk: those that are new, and that others are gone. Raises OSError."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _open_stream(path: Path) -> int:
    """Open a pipe or device for writing. Raise OSError for a pipe that nobody reads."""
    deadline = time.monotonic() + WAIT_FOR_READER
    while True:
        try:
            return os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            if time.monotonic() > deadline:
                raise OSError(errno.ENXIO, "nobody reads from this pipe") from error
        time.sleep(0.02)


def _write_stream(handle: int, content: bytes | memoryview, patience: float | None) -> None:
    """Write to an open pipe, device or file, and close it; ``patience`` is in seconds, None waits for ever."""
    left, poll = memoryview(content), select.poll()
    poll.register(handle, select.POLLOUT)
    try:
        while left:
            if not poll.poll(None if patience is None else 1000 * patience):
                raise TimeoutError(errno.ETIMEDOUT, f"nobody read from it for {patience:g} seconds")
            left = left[os.write(handle, left[:PIECE]) :]
    finally:
        os.close(handle)
