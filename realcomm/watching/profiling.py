"""A profile of chosen training steps by torch's profiler, a file a rank, which ``ringlab animate`` draws."""

import os
import re
from pathlib import Path
from typing import Any, NamedTuple

import torch

from collectives.errors import InputError
from collectives.quoting import quote
from realcomm.launching.group import own_device
from realcomm.training.observing import Observed, Observer, StepRecord
from realcomm.watching.tensorboard import file_name

FOLDER = "profile"  # in the log folder; one in it for each gradient sync
MOST_STEPS = 100  # a step of a ResNet is some ten thousand events


class Steps(NamedTuple):
    """The steps from the first to the last, both included, counted from 0."""

    first: int
    last: int


def parse_steps(text: str) -> Steps:
    """Return the steps that ``--profile`` names: one, or the first and the last. Raise InputError.

    >>> parse_steps("10-12"), parse_steps("3")
    (Steps(first=10, last=12), Steps(first=3, last=3))
    """
    match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", text, re.ASCII)
    steps = Steps(int(match[1]), int(match[2] or match[1])) if match else Steps(0, -1)
    if not 0 <= steps.last - steps.first < MOST_STEPS:
        raise InputError(
            f"--profile {quote(text)}: give steps as 10 or 10-12, counted from 0, at most {MOST_STEPS} of them"
        )
    return steps


class ProfileObserver(Observer):
    """Profiles chosen steps and writes ``profile/SYNC/rank-N.json.gz`` when they are done; they take longer."""

    def __init__(self, folder: Path, steps: Steps) -> None:
        """Write into ``profile`` in this folder."""
        self.folder, self.steps = folder / FOLDER, steps
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
