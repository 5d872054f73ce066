"""What ``--log-dir`` keeps of a training: rank 0 writes the metrics, and every rank its log."""

import logging
import os
import re
import socket
import sys
from contextlib import suppress
from math import isfinite
from pathlib import Path
from typing import Any

from collectives.input_files import reason
from realcomm.launching.group import own_device
from realcomm.training.observing import EpochRecord, Observed, Observer, RankGradients, StepRecord
from realcomm.watching.log_folder import METRICS, MetricsFile, Row

LOGGER = "ringlab"  # of every rank: logging.getLogger("ringlab") of a user's own code comes here too
FORMAT = "%(asctime)s rank {rank} %(levelname)s %(message)s"
logger = logging.getLogger(LOGGER)


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


class LogObserver(Observer):
    """Writes a row a step and a row an epoch into ``metrics.jsonl``, and ``rank-N.log`` on every rank.

    What cannot be written, on a full disk for example, is warned of once and tried again; the training goes on.
    """

    def __init__(self, folder: Path, attempt: int = 0, mended: str = "") -> None:
        """Write into a folder that a ``LogFolder`` holds, which knows the other two."""
        self.folder, self.attempt, self.mended = folder, attempt, mended
        self._log: RankLog | None = None
        self._metrics: MetricsFile | None = None
        self._has_warned = False

    def begin(self, running: Observed) -> None:
        """Open the files."""
        self._log = RankLog(self.folder, running.rank)
        training, here = running.training, f"process {os.getpid()} of {socket.gethostname()}"
        logger.info(
            f"training/{training.sync_name}: {training.model} on {training.dataset}, step {running.done} of "
            f"{running.steps}, {running.world_size} ranks, {own_device()}, {here}, attempt {self.attempt}"
        )
        if running.rank == 0:
            if self.mended:
                logger.warning(f"{METRICS}: its last line was cut off in the middle and is left out: {self.mended}")
            self._metrics = MetricsFile(self.folder / METRICS)

    def step_done(self, running: Observed, record: StepRecord) -> None:
        """Write the row of a step."""
        if self._metrics is not None:
            self._write(step_row(record) | gradient_fields(running.inspected))

    def epoch_done(self, running: Observed, record: EpochRecord) -> None:
        """Write the row of an epoch."""
        logger.info(
            f"training/{record.gradient_sync}: epoch {record.epoch + 1} is done with step {record.step}, held-out "
            f"accuracy {record.test_accuracy:.2%}, {record.examples_seen} examples seen"
        )
        if self._metrics is not None:
            self._write({"kind": "epoch", **record._asdict()})

    def end(self, running: Observed, error: BaseException | None) -> None:
        """Say how it ended, and close the files."""
        if error is not None:
            watch = running.watch
            logger.info(f"failed in step {running.done}, {watch.current or 'between phases'}", exc_info=error)
        elif running.done == running.steps:
            logger.info(f"training/{running.training.sync_name}: all {running.steps} steps are done")
        if self._metrics is not None:
            if self._metrics.missing:
                logger.warning(
                    f"{self._metrics.path}: {self._metrics.problem}; its last {self._metrics.missing} rows are missing"
                )
            self._metrics.close()
        if self._log is not None:
            self._log.close()
        self._metrics = self._log = None

    def _write(self, row: Row) -> None:
        assert self._metrics is not None
        try:
            self._metrics.add({**row, "attempt": self.attempt})
        except OSError as error:  # the file is gone
            self._metrics.problem = reason(error)
        if self._metrics.problem and not self._has_warned:
            self._has_warned = True
            logger.warning(
                f"{self._metrics.path} cannot be written: {self._metrics.problem}; the training goes on, and rows are "
                "written when there is room"
            )


def gradient_fields(inspected: list[RankGradients]) -> Row:
    """Return what the row of a step that was inspected has more: norms and parameters without a gradient, by rank.

    >>> gradient_fields([RankGradients(0.5, []), RankGradients(float('inf'), ["fc.bias"])])
    {'gradient_norms': [0.5, None], 'unused_parameters': [[], ['fc.bias']]}
    """
    if not inspected:
        return {}
    norms = [each.norm if isfinite(each.norm) else None for each in inspected]
    return {"gradient_norms": norms, "unused_parameters": [each.unused for each in inspected]}


def step_row(record: StepRecord) -> Row:
    """Return the row of a step: the record's fields, with the phases as ``forward_s`` and so on."""
    fields: dict[str, Any] = record._asdict()
    phases = {f"{name.replace(' ', '_')}_s": seconds for name, seconds in fields.pop("phases").items()}
    return {"kind": "step", **fields, **phases}
