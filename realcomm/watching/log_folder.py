"""Write ``metrics.jsonl`` to the ``--log-dir`` folder, one row per step and epoch. Only one run may use a folder."""

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from collectives.errors import InputError
from collectives.input_files import FileBytes, read_text, reason
from collectives.output_files import check_output
from collectives.quoting import cut, quote
from realcomm.training.folder_lock import lock_folder

Row = dict[str, Any]
MOST_LINE = 1 << 20  # bytes; Ringlab writes no longer lines
METRICS, LOCK = "metrics.jsonl", ".in-use"
ADVICE = "use another directory for --log-dir"


class MetricsFile:
    """An append-only JSON Lines file of metrics. If the disk is full, no part of a row is written.

    A row that cannot be written stays in memory and is written together with a later row.

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
        self._file = path.open("ab", buffering=0)

    @property
    def missing(self) -> int:
        """The number of rows that are not written yet."""
        return self._kept.count(b"\n")

    def add(self, row: Row) -> None:
        """Append a row. If that fails, set ``problem``, and keep the row in memory until the next call."""
        self._kept += json.dumps(row, allow_nan=False, ensure_ascii=False).encode() + b"\n"
        size = self._file.seek(0, os.SEEK_END)
        try:
            if self._file.write(self._kept) < len(self._kept):
                self._file.truncate(size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            self.problem = reason(error)
        else:
            self._kept, self.problem = b"", ""

    def close(self) -> None:
        self._file.close()


class LastLines(NamedTuple):
    """A file's last complete row, or None, and the incomplete row after it that a killed writer has left."""

    row: Row | None
    fragment: str


def repair(path: Path) -> LastLines:
    """Remove an incomplete last line from a metrics file; return the last complete row and the removed text.

    Raise OSError if the file cannot be written. Raise InputError for a file of another format, which stays unchanged.
    """
    with path.open("r+b") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(0, end - MOST_LINE))
        *lines, last = file.read().split(b"\n")
        row = parse_row(lines[-1]) if lines else None
        if (lines and row is None) or (last and not last.startswith(b"{")):
            line = quote((last or lines[-1])[:100])
            raise InputError(f"{path}: the last line is not a row of metrics: {line}; {ADVICE}")
        file.truncate(end - len(last))
    return LastLines(row, last.decode(errors="backslashreplace"))


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
    """Read the rows of the metrics file ``path`` in order.

    If ``gradient_sync`` or ``kind`` ("step" or "epoch") is given, return only rows with this value. If a step or epoch
    was repeated after a restart, the last row replaces the first. An incomplete last line is ignored. Raise InputError
    for any other invalid line; the message contains the line number.
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


class Start(NamedTuple):
    """The state of a log folder at the start of a run."""

    attempt: int = 0  # counts earlier starts of this run
    fragment: str = ""  # the incomplete line that its last writer left


def check_log_folder(folder: Path, resumes: bool) -> None:
    """Check that a folder is writable and contains no metrics. If ``resumes`` is true, metrics are allowed.

    Raise InputError otherwise.

    >>> check_log_folder(Path("/dev/null"), resumes=False)
    Traceback (most recent call last):
    collectives.errors.InputError: /dev/null/metrics.jsonl cannot be written: /dev/null is not a directory
    """
    metrics = folder / METRICS
    check_output(metrics)
    if not resumes and metrics.exists() and metrics.stat().st_size:
        raise InputError(f"{folder} contains the metrics of another run; resume it with --resume auto, or {ADVICE}")


@contextmanager
def locked_log_folder(folder: Path, resumes: bool) -> Iterator[Start]:
    """Create a log folder, lock it within the context, and repair its metrics file. Yield the folder's state.

    Raise InputError as ``check_log_folder`` does. Also raise InputError if another run has locked the folder.
    """
    check_log_folder(folder, resumes)
    with lock_folder(folder, LOCK, ADVICE):
        check_log_folder(folder, resumes)  # another run may just have ended
        metrics = folder / METRICS
        row, fragment = repair(metrics) if metrics.exists() else LastLines(None, "")
        attempt = 0 if row is None else row.get("attempt")
        yield Start(attempt + (row is not None) if isinstance(attempt, int) else 1, cut(fragment, 200))
