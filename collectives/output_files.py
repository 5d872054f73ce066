"""Write a file completely or not at all, and never over an input file of the same command.

If the path is a symbolic link, the file that it points to is replaced, and the link stays.
"""

import errno
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from collectives.errors import InputError
from collectives.input_files import KINDS, is_input, is_made_by_kernel, reason

TEMPORARY = ".ringlab-"  # prefix of the name of an incomplete file


def cache_folder() -> Path:
    """Return Ringlab's cache directory, in XDG_CACHE_HOME or ~/.cache. Raise InputError if neither is known."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ringlab"
    except RuntimeError as error:
        raise InputError("no home directory for caches; set XDG_CACHE_HOME to a directory") from error


def check_output(path: Path | str) -> None:
    """Raise InputError if ``path`` cannot be written. Call this function before a long computation.

    It rejects directories, special files, paths in ``/proc`` and ``/sys``, inputs of the same command, links into a
    missing directory, and paths without write permission. Nothing is created or changed.
    """
    try:
        target = _follow(path)
        try:
            status = target.stat()
        except (FileNotFoundError, NotADirectoryError):
            if Path(path).is_symlink() and not target.parent.exists():
                raise InputError(f"{path} links to {target}, whose directory does not exist; create it") from None
        else:
            kind = KINDS.get(stat.S_IFMT(status.st_mode))
            if kind:
                raise InputError(f"{path} is {kind}; pass the name of a file to write")
            if is_input(status):
                raise InputError(f"{path} is an input of this command; pass another file to write")
            if not os.access(target, os.W_OK):
                raise PermissionError(errno.EACCES, "Permission denied")
        _check_folder(target.parent)
    except InputError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise InputError(f"{path} cannot be written: {reason(error)}") from error


def _follow(path: Path | str) -> Path:
    try:
        return Path(os.path.realpath(path, strict=True))
    except (FileNotFoundError, NotADirectoryError):
        return Path(os.path.realpath(path))


def _check_folder(folder: Path) -> None:
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not existing.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, f"{existing} is not a directory")
    if is_made_by_kernel(existing):
        raise OSError(errno.EACCES, f"{existing} is a virtual directory of the kernel")
    if not os.access(existing, os.W_OK | os.X_OK):
        is_read_only = os.statvfs(existing).f_flag & os.ST_RDONLY
        why = "is on a read-only file system" if is_read_only else "is a directory in which you may not write"
        raise PermissionError(errno.EACCES, f"{existing} {why}")


def write_bytes(path: Path | str, content: bytes | memoryview, durable: bool = False) -> None:
    """Write ``content`` to ``path`` atomically. Missing directories are created.

    An existing file keeps its permissions and, if this user may set it, its owner. If ``durable`` is True, the file and
    its name are on disk when the function returns. Raise InputError if ``check_output`` rejects the path. Raise OSError
    with ``path`` if a system call fails.
    """
    check_output(path)
    target = _follow(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        new = target.parent / f"{TEMPORARY}{secrets.token_hex(8)}"
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            with os.fdopen(handle, "wb") as file:
                if target.exists():
                    status = target.stat()
                    with suppress(OSError):
                        os.fchown(handle, status.st_uid, status.st_gid)
                    os.fchmod(handle, status.st_mode & 0o777)
                file.write(content)
                if durable:  # before the rename, so that no name leads to an incomplete file
                    file.flush()
                    os.fsync(handle)
            new.replace(target)
            if durable:
                sync_folder(target.parent)
        except BaseException:
            new.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise OSError(error.errno, reason(error), str(path)) from error


def write_text(path: Path | str, content: str, durable: bool = False) -> None:
    """Write text to ``path`` as UTF-8, like ``write_bytes``. Characters that UTF-8 cannot encode are escaped."""
    write_bytes(path, content.encode(errors="backslashreplace"), durable)


def sync_folder(folder: Path) -> None:
    """Call fsync on a directory, so that new and removed file names in it persist. Raise OSError if that fails."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
