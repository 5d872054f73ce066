"""A log file a rank, and what rank 0 says on the terminal: warnings only, as its progress is shown already."""

import logging
import re
import sys
from contextlib import suppress
from pathlib import Path

LOGGER = "ringlab"  # of every rank: logging.getLogger("ringlab") of a user's own code comes here too
FORMAT = "%(asctime)s rank {rank} %(levelname)s %(message)s"


class RankLog:
    """The log of one rank: a file to which it is appended, and of rank 0 standard error for warnings.

    A file that cannot be written, on a full disk for example, stops nothing.
    """

    def __init__(self, folder: Path, rank: int) -> None:
        """Open ``rank-N.log`` in the folder. Raise OSError."""
        self._logger = logging.getLogger(LOGGER)
        self._before = self._logger.level, self._logger.propagate
        self._logger.setLevel(logging.INFO)
        self._logger.propagate = False
        folder.mkdir(parents=True, exist_ok=True)
        self._handlers: list[logging.Handler] = [_File(folder / f"rank-{rank}.log", encoding="utf-8")]
        if rank == 0:
            terminal = logging.StreamHandler(sys.stderr)
            terminal.setLevel(logging.WARNING)
            self._handlers.append(terminal)
        for handler in self._handlers:
            handler.setFormatter(_OneLine(FORMAT.format(rank=rank) if isinstance(handler, _File) else "%(message)s"))
            self._logger.addHandler(handler)

    def close(self) -> None:
        """Close the file; the logger is as it was before."""
        for handler in self._handlers:
            self._logger.removeHandler(handler)
            handler.close()
        level, self._logger.propagate = self._before
        self._logger.setLevel(level)


class _File(logging.FileHandler):
    """A file whose errors are no errors of what is logged."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Leave the line out."""

    def close(self) -> None:
        """Close the file, also where what is left cannot be written."""
        with suppress(OSError):
            super().close()


class _OneLine(logging.Formatter):
    """One line a message; a traceback below it."""

    def format(self, record: logging.LogRecord) -> str:
        record.msg, record.args = " ".join(record.getMessage().split()), ()
        return re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", "?", super().format(record))
