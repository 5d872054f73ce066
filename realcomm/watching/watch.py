"""Define the observer that writes the files of ``--log-dir``: metrics and logs."""

import logging
import os
import re
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collectives.variables import is_first_rank
from realcomm.launching.group import own_device
from realcomm.launching.torchrun import restarts
from realcomm.training.observing import EpochRecord, Observer, StepRecord
from realcomm.training.running import RunningTraining
from realcomm.watching.log_folder import METRICS, MetricsFile, Row, Start, check_log_folder, locked_log_folder

FORMAT = "%(asctime)s rank {rank} %(levelname)s %(message)s"
logger = logging.getLogger("ringlab")  # users' code also logs to it


@contextmanager
def logging_to(file: Path, rank: int) -> Iterator[None]:
    """Write this rank's log to a file within the context. Warnings of rank 0 also go to stderr.

    Errors while writing, for example on a full disk, are ignored. Raise OSError if the file cannot be opened.
    """
    before = logger.level, logger.propagate
    file.parent.mkdir(parents=True, exist_ok=True)
    handlers: list[logging.Handler] = [_File(file, encoding="utf-8")]
    handlers[0].setFormatter(_OneLine(FORMAT.format(rank=rank)))
    if rank == 0:
        handlers.append(logging.StreamHandler(sys.stderr))
        handlers[1].setFormatter(_OneLine("%(message)s"))
        handlers[1].setLevel(logging.WARNING)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    for handler in handlers:
        logger.addHandler(handler)
    try:
        yield
    finally:
        for handler in handlers:
            logger.removeHandler(handler)
            handler.close()
        logger.setLevel(before[0])
        logger.propagate = before[1]


class _File(logging.FileHandler):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Ignore a record that cannot be written."""

    def close(self) -> None:
        with suppress(OSError):
            super().close()


class _OneLine(logging.Formatter):
    """Formats each message as one line, followed by a traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        record.msg, record.args = " ".join(record.getMessage().split()), ()
        return re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", "?", super().format(record))


class LogObserver(Observer):
    """Writes the metrics of each step and epoch to ``metrics.jsonl`` on rank 0, and ``rank-N.log`` on every rank.

    If a row of metrics cannot be written, the observer warns once and tries again later. The training run continues.
    """

    def __init__(self, folder: Path, start: Start = Start()) -> None:  # noqa: B008 - it is immutable
        self.folder, self.start = folder, start
        self._metrics: MetricsFile | None = None
        self._has_warned = False

    def begin(self, running: RunningTraining) -> None:
        self._log = ExitStack()
        self._log.enter_context(logging_to(self.folder / f"rank-{running.rank}.log", running.rank))
        training, process = running.training, f"process {os.getpid()} of {socket.gethostname()}"
        logger.info(
            f"training/{training.sync_name}: {training.model} on {training.dataset}, step {running.done} of "
            f"{running.steps}, {running.world_size} ranks, {own_device()}, {process}, attempt {self.start.attempt}"
        )
        if running.rank == 0:
            if self.start.fragment:
                logger.warning(f"{METRICS}: its last line was incomplete and is dropped: {self.start.fragment}")
            self._metrics = MetricsFile(self.folder / METRICS)

    def step_done(self, running: RunningTraining, record: StepRecord) -> None:
        if self._metrics is not None:
            self._write(step_row(record))

    def epoch_done(self, running: RunningTraining, record: EpochRecord) -> None:
        logger.info(
            f"training/{record.gradient_sync}: epoch {record.epoch + 1} done after step {record.step}, held-out "
            f"accuracy {record.test_accuracy:.2%}, {record.examples_seen} examples seen"
        )
        if self._metrics is not None:
            self._write({"kind": "epoch", **record._asdict()})

    def end(self, running: RunningTraining, error: BaseException | None) -> None:
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
            self._metrics = None
        self._log.close()

    def _write(self, row: Row) -> None:
        assert self._metrics is not None
        self._metrics.add({**row, "attempt": self.start.attempt})
        if self._metrics.problem and not self._has_warned:
            self._has_warned = True
            logger.warning(
                f"{self._metrics.path} is not writable: {self._metrics.problem}; the training continues, and rows are "
                "written later"
            )


def step_row(record: StepRecord) -> Row:
    """Return a step's record as a row, in which phases have names such as ``forward_s``."""
    fields: dict[str, Any] = record._asdict()
    phases = {f"{name.replace(' ', '_')}_s": seconds for name, seconds in fields.pop("phases").items()}
    return {"kind": "step", **fields, **phases}


@dataclass(frozen=True)
class Watch:
    """The log folder of training runs. It creates the observer that writes metrics and logs into the folder."""

    folder: Path

    def check(self, resumes: bool) -> None:
        """Raise InputError if the folder is not writable, or if it has metrics and the run does not resume."""
        if is_first_rank():
            check_log_folder(self.folder, resumes or restarts() > 0)

    @contextmanager
    def observing(self, resumes: bool) -> Iterator[list[Observer]]:
        """Lock the folder within the context; yield the observers for the training runs.

        A run that torchrun has restarted continues in its folder. Raise InputError as ``check`` does. Also raise
        InputError if another run has locked the folder.
        """
        with ExitStack() as stack:
            start = Start()
            if is_first_rank():
                start = stack.enter_context(locked_log_folder(self.folder, resumes or restarts() > 0))
            yield [LogObserver(self.folder, start)]

    def describe(self) -> str:
        return f"Metrics and logs: {self.folder}"
