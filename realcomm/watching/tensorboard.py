"""Curves for TensorBoard, an extra: ``pip install 'ringlab[tensorboard]'``."""

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from collectives.errors import InputError
from realcomm.training.observing import EpochRecord, Observed, Observer, StepRecord

FOLDER = "tensorboard"  # in the log folder; one in it for each gradient sync


def check_tensorboard() -> None:
    """Raise InputError where TensorBoard is not installed."""
    if find_spec("tensorboard") is None:
        raise InputError("--tensorboard needs the package tensorboard: pip install 'ringlab[tensorboard]'")


class TensorBoardObserver(Observer):
    """Writes loss, learning rate, throughput, phases and held-out accuracy, from rank 0."""

    def __init__(self, folder: Path) -> None:
        """Write into ``tensorboard`` in this folder."""
        self.folder = folder / FOLDER
        self._writer: Any = None

    def begin(self, running: Observed) -> None:
        """Open the file; of steps that a resumed training does again, the new ones count."""
        if running.rank != 0:
            return
        from torch.utils.tensorboard import SummaryWriter  # slow to import, and an extra

        folder = self.folder / file_name(running.training.sync_name)
        self._writer = SummaryWriter(str(folder), purge_step=running.done)

    def step_done(self, running: Observed, record: StepRecord) -> None:
        """Write the values of a step."""
        if self._writer is None:
            return
        for name in ("loss", "learning_rate", "samples_per_s"):
            self._writer.add_scalar(name, getattr(record, name), record.step)
        for phase, seconds in record.phases.items():
            self._writer.add_scalar(f"phases/{phase}_s", seconds, record.step)

    def epoch_done(self, running: Observed, record: EpochRecord) -> None:
        """Write the value of an epoch."""
        if self._writer is not None:
            self._writer.add_scalar("test_accuracy", record.test_accuracy, record.step)
            self._writer.flush()

    def end(self, running: Observed, error: BaseException | None) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()
        self._writer = None


def file_name(label: str) -> str:
    """Return a label as a file may be called.

    >>> file_name("my.py:ring(chunks=4)")
    'my.py_ring_chunks_4_'
    """
    return re.sub(r"[^\w.-]+", "_", label).lstrip(".") or "training"
