"""Faults that a rank causes in the middle of a training step."""

import os
import resource
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from collectives.errors import InputError
from realcomm.training.observing import Observer
from realcomm.training.running import RunningTraining

MOST_BYTES = 64 << 10  # that a file may have where the disk is as good as full
FAULTS = ("raise", "exit", "kill", "stop", "nan", "full", "kill writer")


@dataclass
class Fault(Observer):
    """A fault on one rank in a phase of a step. Other ranks have it too, but it does nothing there.

    "raise", "exit", "kill" (SIGKILL), "stop" (SIGSTOP) and names of signals do what they say. "nan" damages the rank's
    weights, "full" limits files to 64 KiB, and "kill writer" kills the rank after that many bytes of its next
    checkpoint. The time is written to ``told``, in seconds since the epoch.

    >>> Fault("flood")
    Traceback (most recent call last):
    collectives.errors.InputError: fault 'flood' is not known; there are raise, exit, kill, stop, nan, full, kill writer
    """

    kind: str
    rank: int = 1
    step: int = 3  # from 0 on
    phase: str = "backward"
    told: Path | None = None

    def __post_init__(self) -> None:
        if self.kind not in FAULTS and self.kind not in signal.Signals.__members__:
            raise InputError(f"fault {self.kind!r} is not known; there are {', '.join(FAULTS)}")

    def begin(self, running: RunningTraining) -> None:
        """Trigger the fault at the beginning of the phases of its step."""
        if running.rank != self.rank:
            return
        timed = running.watch.phase

        @contextmanager
        def phase(name: str) -> Iterator[None]:
            with timed(name):
                if (name, running.watch.step) == (self.phase, self.step):
                    self._happen(running)
                yield

        running.watch.phase = phase  # type: ignore[method-assign]

    def _happen(self, running: RunningTraining) -> None:
        if self.told is not None:
            self.told.write_text(str(time.time()))
        if self.kind == "raise":
            raise ZeroDivisionError("a fault on purpose")
        if self.kind == "exit":
            os._exit(7)
        if self.kind == "nan":
            with torch.no_grad():
                next(running.model.parameters()).fill_(torch.nan)
        if self.kind in ("kill", "stop") or self.kind in signal.Signals.__members__:
            name = {"kill": "SIGKILL", "stop": "SIGSTOP"}.get(self.kind, self.kind)
            os.kill(os.getpid(), signal.Signals[name])
        if self.kind == "full":
            end_files_after(MOST_BYTES)
        if self.kind == "kill writer":
            end_files_after(MOST_BYTES)
            signal.signal(signal.SIGXFSZ, lambda number, frame: os.kill(os.getpid(), signal.SIGKILL))


def end_files_after(size: int) -> None:
    """Limit the files of this process to ``size`` bytes, as on a full disk."""
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, most))
