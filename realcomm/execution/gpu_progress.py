"""Find the step that a GPU has reached in its queued programs, to report the location of a hang.

On a GPU, ``wait`` returns at once, so the host posts all steps before the first message arrives. Therefore a CUDA event
is recorded on the stream after each step. The thread that detects hangs looks for the first step whose event is not
complete.
"""

import time
import weakref
from collections import deque
from functools import cache
from typing import NamedTuple

import torch

from realcomm.launching.hangs import Pending, watch_by
from realcomm.launching.status import Wait, own_slot

MOST_RUNS = 64  # latest runs to look at

_begun: deque["weakref.ref[StepMarks]"] = deque(maxlen=MOST_RUNS)


class StepMark(NamedTuple):
    """A step of a program that waits for ``peer``, a world rank."""

    channel: int
    step: int
    peer: int


class StepMarks:
    """CUDA events that are recorded after the steps of a program's latest run."""

    def __init__(self, device: torch.device, label: bytes, timeout_s: float) -> None:
        """Observe the runs of the program ``label``, whose group has a timeout of ``timeout_s`` seconds."""
        self.label, self.timeout_s, self._device = label, timeout_s, device
        self._events: list[torch.cuda.Event] = []
        self._marks: list[StepMark] = []
        self._is_kept, self.begun_s = False, 0.0

    def begin(self) -> None:
        """Begin a run. If the GPU has not finished the previous run, keep observing the previous run instead."""
        self._is_kept = self.first_unfinished() is not None
        if not self._is_kept:
            self._marks, self.begun_s = [], time.monotonic()
            _begun.append(weakref.ref(self))
            _start_looking(self._device)

    def add(self, mark: StepMark) -> None:
        """Record an event on the current stream for the end of a step."""
        if self._is_kept:
            return
        if len(self._events) == len(self._marks):
            self._events.append(torch.cuda.Event())
        self._events[len(self._marks)].record(torch.cuda.current_stream(self._device))
        self._marks.append(mark)

    def first_unfinished(self) -> StepMark | None:
        """Return the first step that the GPU has not completed, or None if all steps are complete."""
        pairs = zip(list(self._marks), self._events, strict=False)
        return next((mark for mark, event in pairs if not event.query()), None)


def look(wait: Wait) -> Pending | None:
    """Find the step at which the GPU is waiting, and store it in ``wait``. Return None if all steps are complete."""
    for marks in [marks for marks in (reference() for reference in list(_begun)) if marks is not None]:
        if (mark := marks.first_unfinished()) is not None:
            wait.collective[:] = marks.label
            wait.location[0], wait.location[1] = mark.step, mark.peer
            name = marks.label.rstrip(b"\0").decode()
            text = f"{name}, channel {mark.channel}, step {mark.step}, waiting for rank {mark.peer}"
            return Pending(text, time.monotonic() - marks.begun_s, marks.timeout_s)
    wait.end()
    return None


@cache
def _start_looking(device: torch.device) -> None:
    """Let the thread that detects hangs also check this GPU for unfinished steps."""

    def look_at() -> Pending | None:
        torch.cuda.set_device(device)  # otherwise this thread would begin to use the first GPU
        return look(own_slot().wait)

    watch_by(look_at)
