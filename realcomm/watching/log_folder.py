"""The folder of ``--log-dir``: checked before anything runs, and held by one run at a time."""

import errno
import fcntl
import os
import socket
import stat
from pathlib import Path
from types import TracebackType
from typing import Self

from collectives.errors import InputError
from collectives.input_files import reason
from collectives.output_files import check_output
from collectives.quoting import cut
from realcomm.watching.metrics_file import last_row, mend

METRICS, LOCK = "metrics.jsonl", ".in-use"
MOST_SHOWN = 200  # letters of a line that was cut off


class LogFolder:
    """A folder for the metrics and logs of one run, held while the ``with`` statement lasts.

    ``attempt`` counts the times that this run was started before, and ``mended`` is what was left of a line that its
    last writer did not finish.
    """

    def __init__(self, path: Path | str, goes_on: bool = False) -> None:
        """Name the folder; with ``goes_on`` it may hold an earlier part of the same run."""
        self.path = Path(path)
        self.goes_on = goes_on
        self.attempt = 0
        self.mended = ""
        self._lock: int | None = None

    def check(self) -> None:
        """Raise InputError for a folder that cannot be written, or that holds another run's metrics."""
        check_log_folder(self.path)
        metrics = self.path / METRICS
        if metrics.exists() and not metrics.is_file():
            raise InputError(f"{metrics} is no regular file; give another --log-dir")
        if not self.goes_on and metrics.exists() and metrics.stat().st_size:
            raise InputError(
                f"{self.path} holds the metrics of another run; go on with it by --resume auto, or give another folder"
            )

    def __enter__(self) -> Self:
        """Make the folder and hold it. Raise InputError as ``check`` does, and where another run holds it."""
        self.check()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._hold()
            self.check()  # another run may just have ended
            self._look_at_metrics()
        except OSError as error:
            self._release()
            raise InputError(f"{self.path} cannot be written: {reason(error)}; give another --log-dir") from error
        except BaseException:
            self._release()
            raise
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._release()

    def _hold(self) -> None:
        """Lock the folder, and say in the lock who has it; the kernel releases it with this process."""
        path = self.path / LOCK
        if os.path.lexists(path) and not stat.S_ISREG(path.lstat().st_mode):
            raise InputError(f"{path} is no regular file; remove it, or give another --log-dir")
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.read(lock, 200).decode(errors="replace").strip() or "another process"
            os.close(lock)
            raise InputError(f"{self.path} is in use by {cut(holder)}; give another --log-dir") from error
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):  # a file system without locks
                os.close(lock)
                raise
        self._lock = lock
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"process {os.getpid()} of {socket.gethostname()}\n".encode(), 0)

    def _look_at_metrics(self) -> None:
        metrics = self.path / METRICS
        if not metrics.exists():
            return
        self.mended = cut(mend(metrics), MOST_SHOWN)
        row = last_row(metrics)
        if row is not None:
            attempt = row.get("attempt")
            self.attempt = attempt + 1 if isinstance(attempt, int) else 1

    def _release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)  # the file stays: one who has opened it and one who makes it anew would both hold it
            self._lock = None


def check_log_folder(path: Path) -> None:
    """Raise InputError for what can be no folder of logs. Nothing is created or changed.

    >>> check_log_folder(Path("/dev/null"))
    Traceback (most recent call last):
    collectives.errors.InputError: /dev/null is no folder; give one for --log-dir
    """
    try:
        is_there = path.exists()
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: {reason(error)}; give a folder for --log-dir") from error
    if is_there and not path.is_dir():
        raise InputError(f"{path} is no folder; give one for --log-dir")
    check_output(path / METRICS)
