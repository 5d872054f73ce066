"""Lock the folder of ``--log-dir`` for one run at a time, and write its ``metrics.jsonl``: a row per step and epoch."""

import errno
import fcntl
import json
import os
import socket
import stat
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from collectives.errors import InputError
from collectives.input_files import FileBytes, read_text, reason
from collectives.output_files import check_output
from collectives.quoting import cut, quote

Row = dict[str, Any]
MOST_LINE = 1 << 20  # bytes; Ringlab writes no longer lines
METRICS, LOCK = "metrics.jsonl", ".in-use"


class MetricsFile:
    """An append-only file of rows. A row is one line, which is written completely or, on a full disk, not at all.

    A row that cannot be written is kept, and written together with a later row.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = MetricsFile(Path(folder, "metrics.jsonl"))
    ...     file.add({"step": 0, "loss": 2.3})
    ...     file.close()
    ...     read_metrics(file.path)
    [{'step': 0, 'loss': 2.3}]
    """

    def __init__(self, path: Path) -> None:
        """Open the file, or create it. Raise OSError if that fails."""
        self.path = path
        self.problem = ""  # why the last row could not be written
        self._kept = b""
        self._handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)

    @property
    def missing(self) -> int:
        """The number of rows that are not written yet."""
        return self._kept.count(b"\n")

    def add(self, row: Row) -> None:
        """Append a row. If that fails, keep the row and set ``problem``."""
        self._kept += json.dumps(row, allow_nan=False, ensure_ascii=False).encode() + b"\n"
        size = os.fstat(self._handle).st_size
        try:
            if os.fstat(self._handle).st_nlink == 0:
                raise OSError(errno.ENOENT, "the file was removed")
            written = os.write(self._handle, self._kept)
            if written < len(self._kept):
                os.ftruncate(self._handle, size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            self.problem = reason(error)
            return
        self._kept, self.problem = b"", ""

    def close(self) -> None:
        os.close(self._handle)


def repair(path: Path) -> str:
    """Repair the last line of a file whose writer was killed; return the incomplete text that was removed, or "".

    A complete row without a line end gets one. Raise OSError if the file cannot be written. If it has another format,
    leave it unchanged and raise InputError.
    """
    with path.open("r+b") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(0, end - MOST_LINE))
        *before, last = file.read().split(b"\n")
        if not last:
            return ""
        if parse_row(last) is not None:
            file.write(b"\n")
            return ""
        if before:
            _check_row(path, before[-1])
        if not last.startswith(b"{"):
            raise _no_row(path, last)
        file.truncate(end - len(last))
        return last.decode(errors="backslashreplace")


def last_row(path: Path) -> Row | None:
    """Return the last row of a file whose lines are complete, or None. Raise InputError if that line is not a row."""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(0, end - MOST_LINE))
        lines = file.read().splitlines()
    return _check_row(path, lines[-1]) if lines else None


def _check_row(path: Path, line: bytes) -> Row:
    row = parse_row(line)
    if row is None:
        raise _no_row(path, line)
    return row


def _no_row(path: Path, line: bytes) -> InputError:
    return InputError(f"{path}: the last line is not a row of metrics: {quote(line[:100])}; use another directory")


def parse_row(line: bytes) -> Row | None:
    """Return the row in a line, or None if the line is not a JSON object.

    >>> parse_row(b'{"step": 1}'), parse_row(b'{"st')
    ({'step': 1}, None)
    """
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def read_metrics(path: Path | str, gradient_sync: str | None = None, kind: str | None = None) -> list[Row]:
    """Return the rows of a file in order. ``gradient_sync`` and ``kind`` ("step", "epoch") select some of the rows.

    If a step was repeated after a restart, its last row replaces the first. The last line may be incomplete. Raise
    InputError, with the line number, for any other invalid line.
    """
    path = Path(path)
    lines = read_text(path, FileBytes.LOG).split("\n")
    rows: dict[object, Row] = {}
    for number, line in enumerate(lines[:-1], start=1):
        row = parse_row(line.encode())
        if row is None:
            raise InputError(f"{path}: line {number} is not a row of metrics: {quote(line[:100])}")
        if gradient_sync in (None, row.get("gradient_sync")) and kind in (None, row.get("kind")):
            key = tuple(row.get(name) for name in ("kind", "gradient_sync", "step"))
            rows[key if all(isinstance(part, str | int) for part in key) else number] = row
    return list(rows.values())


class LogFolder:
    """A folder for the metrics and logs of one run, locked within a ``with`` statement.

    ``attempt`` counts earlier starts of this run. ``fragment`` is the incomplete line that its last writer left.
    """

    def __init__(self, path: Path | str, resumes: bool = False) -> None:
        """Set the folder. With ``resumes``, it may already contain an earlier part of the same run."""
        self.path = Path(path)
        self.resumes = resumes
        self.attempt = 0
        self.fragment = ""
        self._lock: int | None = None

    def check(self) -> None:
        """Raise InputError for a folder that is not writable, or that contains another run's metrics."""
        check_log_folder(self.path)
        metrics = self.path / METRICS
        if metrics.exists() and not metrics.is_file():
            raise InputError(f"{metrics} is not a regular file; use another --log-dir")
        if not self.resumes and metrics.exists() and metrics.stat().st_size:
            raise InputError(
                f"{self.path} contains the metrics of another run; resume it with --resume auto, or use another "
                "directory"
            )

    def __enter__(self) -> Self:
        """Create the folder and lock it. Raise InputError as ``check`` does, and if another run has locked it."""
        self.check()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._acquire()
            self.check()  # another run may just have ended
            self._look_at_metrics()
        except OSError as error:
            self._release()
            raise InputError(f"{self.path} is not writable: {reason(error)}; use another --log-dir") from error
        except BaseException:
            self._release()
            raise
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._release()

    def _acquire(self) -> None:
        """Lock the folder, and write the owner into the lock file. The kernel releases the lock with this process."""
        path = self.path / LOCK
        if os.path.lexists(path) and not stat.S_ISREG(path.lstat().st_mode):
            raise InputError(f"{path} is not a regular file; remove it, or use another --log-dir")
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.read(lock, 200).decode(errors="replace").strip() or "another process"
            os.close(lock)
            raise InputError(f"{self.path} is in use by {cut(holder)}; use another --log-dir") from error
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):  # the file system has no locks
                os.close(lock)
                raise
        self._lock = lock
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"process {os.getpid()} of {socket.gethostname()}\n".encode(), 0)

    def _look_at_metrics(self) -> None:
        metrics = self.path / METRICS
        if not metrics.exists():
            return
        self.fragment = cut(repair(metrics), 200)
        row = last_row(metrics)
        if row is not None:
            attempt = row.get("attempt")
            self.attempt = attempt + 1 if isinstance(attempt, int) else 1

    def _release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)  # the file stays, otherwise two runs could lock different files of this name
            self._lock = None


def check_log_folder(path: Path) -> None:
    """Raise InputError for a path that cannot be a log folder. Nothing is created or changed.

    >>> check_log_folder(Path("/dev/null"))
    Traceback (most recent call last):
    collectives.errors.InputError: /dev/null is not a directory; use a directory for --log-dir
    """
    try:
        is_there = path.exists()
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: {reason(error)}; use a directory for --log-dir") from error
    if is_there and not path.is_dir():
        raise InputError(f"{path} is not a directory; use a directory for --log-dir")
    check_output(path / METRICS)
