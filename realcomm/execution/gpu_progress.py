"""How far a GPU has got in the programs that are queued on it, so that a hang names the place.

On a GPU ``wait`` does not wait: the host has posted all steps before the first message has come. So an event follows
each step on the stream, and a thread of the rank stores the first step whose event the GPU has not passed.
"""

import threading
import time
import weakref
from collections import deque
from contextlib import suppress

import torch

from realcomm.launching.status import Wait, own_slot

LOOK_S = 0.5  # from one look to the next
MOST_RUNS = 64  # that are looked at: those that began last

_begun: deque["weakref.ref[StepMarks]"] = deque(maxlen=MOST_RUNS)


class StepMarks:
    """Events behind the steps of one program's latest run."""

    def __init__(self, device: torch.device, label: bytes) -> None:
        """Mark the runs of a program called ``label``."""
        self.label, self._device = label, device
        self._events: list[torch.cuda.Event] = []
        self._sites: list[tuple[int, int]] = []
        self._is_kept = False

    def begin(self) -> None:
        """Begin a run; while the GPU has not ended the one before, its marks stay."""
        self._is_kept = self.site() is not None
        if not self._is_kept:
            self._sites = []
            _begun.append(weakref.ref(self))
            _start_looking(self._device)

    def add(self, step: int, peer: int) -> None:
        """Mark the end of a step, which waits for ``peer``."""
        if self._is_kept:
            return
        if len(self._events) == len(self._sites):
            self._events.append(torch.cuda.Event())
        self._events[len(self._sites)].record(torch.cuda.current_stream(self._device))
        self._sites.append((step, peer))

    def site(self) -> tuple[int, int] | None:
        """Return the first step that the GPU has not passed, and the peer that it waits for."""
        pairs = zip(list(self._sites), self._events, strict=False)
        return next((site for site, event in pairs if not event.query()), None)


def look(wait: Wait) -> None:
    """Store in ``wait`` where the GPU is."""
    for marks in [found for found in (one() for one in list(_begun)) if found is not None]:
        if (site := marks.site()) is not None:
            wait.collective[:] = marks.label
            wait.site[0], wait.site[1] = site
            return
    wait.end()


class _Looking:
    thread: threading.Thread | None = None


def _start_looking(device: torch.device) -> None:
    """Start the thread of this process that looks, unless it runs."""
    if _Looking.thread is None:
        _Looking.thread = threading.Thread(target=_look_again, args=(device,), name="ringlab GPU", daemon=True)
        _Looking.thread.start()


def _look_again(device: torch.device) -> None:
    torch.cuda.set_device(device)  # otherwise this thread would begin to use the first GPU
    with suppress(RuntimeError, ValueError):  # the communicator was aborted, or the rank ends
        while True:
            time.sleep(LOOK_S)
            look(own_slot().wait)
