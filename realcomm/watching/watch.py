"""What a user wants kept of a training: the folder, metrics and logs, curves for TensorBoard, and profiles of steps."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch

from collectives.errors import InputError
from collectives.quoting import quote
from collectives.variables import is_first_rank
from realcomm.launching.group import own_device
from realcomm.launching.torchrun import restarts
from realcomm.training.observing import EpochRecord, Observed, Observer, StepRecord
from realcomm.watching.log_folder import LogFolder
from realcomm.watching.log_observer import LogObserver

TENSORBOARD_FOLDER = "tensorboard"  # in the log folder; one in it for each gradient sync
PROFILE_FOLDER = "profile"  # in the log folder; one in it for each gradient sync
MOST_STEPS = 100  # a step of a ResNet is some ten thousand events


def check_tensorboard() -> None:
    """Raise InputError where TensorBoard is not installed."""
    if find_spec("tensorboard") is None:
        raise InputError("--tensorboard needs the package tensorboard: pip install 'ringlab[tensorboard]'")


class TensorBoardObserver(Observer):
    """Writes loss, learning rate, throughput, phases and held-out accuracy, from rank 0."""

    def __init__(self, folder: Path) -> None:
        """Write into ``tensorboard`` in this folder."""
        self.folder = folder / TENSORBOARD_FOLDER
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


class ProfiledSteps(NamedTuple):
    """The steps from the first to the last, both included, counted from 0."""

    first: int
    last: int


def parse_steps(text: str) -> ProfiledSteps:
    """Return the steps that ``--profile`` names: one, or the first and the last. Raise InputError.

    >>> parse_steps("10-12"), parse_steps("3")
    (ProfiledSteps(first=10, last=12), ProfiledSteps(first=3, last=3))
    """
    match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", text, re.ASCII)
    steps = ProfiledSteps(int(match[1]), int(match[2] or match[1])) if match else ProfiledSteps(0, -1)
    if not 0 <= steps.last - steps.first < MOST_STEPS:
        raise InputError(
            f"--profile {quote(text)}: give steps as 10 or 10-12, counted from 0, at most {MOST_STEPS} of them"
        )
    return steps


class ProfileObserver(Observer):
    """Profiles chosen steps and writes ``profile/SYNC/rank-N.json.gz`` when they are done; they take longer."""

    def __init__(self, folder: Path, steps: ProfiledSteps) -> None:
        """Write into ``profile`` in this folder."""
        self.folder, self.steps = folder / PROFILE_FOLDER, steps
        self._profiler: Any = None

    def begin(self, running: Observed) -> None:
        """Begin to profile if the next step is the first one."""
        self._begin_before(running.done)

    def step_done(self, running: Observed, record: StepRecord) -> None:
        """Begin or end where it is time to."""
        if self._profiler is not None:
            self._profiler.step()
            if record.step == self.steps.last:
                self._write(running)
        self._begin_before(record.step + 1)

    def end(self, running: Observed, error: BaseException | None) -> None:
        """Write what there is."""
        if self._profiler is not None:
            self._write(running)

    def _begin_before(self, step: int) -> None:
        """Begin if this is the first step to be profiled."""
        if step != self.steps.first:
            return
        activities = [torch.profiler.ProfilerActivity.CPU]
        if own_device().type == "cuda":
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        os.environ.setdefault("KINETO_LOG_LEVEL", "5")  # it would say on standard error that there is no GPU
        self._profiler = torch.profiler.profile(activities=activities)
        self._profiler.start()

    def _write(self, running: Observed) -> None:
        self._profiler.stop()
        folder = self.folder / file_name(running.training.sync_name)
        folder.mkdir(parents=True, exist_ok=True)
        self._profiler.export_chrome_trace(str(folder / f"rank-{running.rank}.json.gz"))
        self._profiler = None


@dataclass(frozen=True)
class Watch:
    """What is kept of each training of a run, in ``folder``: metrics and logs, curves if asked for, a profile of steps.

    Raises InputError where TensorBoard is wanted and missing.
    """

    folder: Path
    tensorboard: bool = False
    profile: ProfiledSteps | None = None

    def __post_init__(self) -> None:
        if self.tensorboard:
            check_tensorboard()

    def check(self, resumes: bool) -> None:
        """Raise InputError where nothing can be kept in the folder, or another run has kept something there."""
        if is_first_rank():
            self._log_folder(resumes).check()

    @contextmanager
    def observing(self, resumes: bool) -> Iterator[list[Observer]]:
        """Hold the folder while a run lasts; return who looks on during each of its trainings. Raise InputError."""
        folder = self._log_folder(resumes)
        with folder if is_first_rank() else nullcontext():
            yield self._observers(folder)

    def _log_folder(self, resumes: bool) -> LogFolder:
        """Return the folder; a run that torchrun has started again goes on."""
        return LogFolder(self.folder, goes_on=resumes or restarts() > 0)

    def _observers(self, held: LogFolder) -> list[Observer]:
        found: list[Observer] = [LogObserver(self.folder, held.attempt, held.mended)]
        if self.tensorboard:
            found.append(TensorBoardObserver(self.folder))
        if self.profile is not None:
            found.append(ProfileObserver(self.folder, self.profile))
        return found

    def describe(self) -> str:
        """Return where to look afterwards."""
        found = f"Metrics and logs: {self.folder}"
        if self.profile is not None:
            profile = self.folder / PROFILE_FOLDER
            found += f"; profile: {profile}, a folder for each sync, which `ringlab animate FOLDER/` draws"
        return found
