"""The phases of one rank's training steps, timed."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from collectives.records.spans import Span
from realcomm.launching.status import set_status


class Stopwatch:
    """The phases of one rank's steps as spans, in seconds since the watch was made.

    >>> watch = Stopwatch(rank=0)
    >>> watch.start()
    >>> with watch.phase("forward"):
    ...     pass
    >>> [(span.step, span.name) for span in watch.spans]
    [(0, 'forward')]
    """

    def __init__(self, rank: int, label: str = "") -> None:
        """Make the watch of a rank, whose status is ``label``, step and phase where there is a label."""
        self.spans: list[Span] = []
        self.step = -1
        self.current = ""  # the phase that is under way, or broke
        self._rank, self._label = rank, label
        self._origin = self._paused = _now()

    def pause(self) -> None:
        """Stand still until ``resume``."""
        self._paused = _now()

    def resume(self) -> None:
        """Go on from the time at which the watch was paused, or made."""
        self._origin += _now() - self._paused

    def start(self) -> None:
        """Begin a step."""
        self.step += 1

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time what is done within the context; nothing is recorded of what raises."""
        self.current = name
        if self._label:
            set_status(f"{self._label} {self.step}, {name}")
        begin = _now()
        yield
        self._add(name, self.step, begin, _now())
        self.current = ""

    def begin(self, name: str) -> Callable[[], None]:
        """Begin something that overlaps the phases of this step; return what ends it, which any thread may call."""
        begin, step = time.perf_counter(), self.step

        def end() -> None:
            self._add(name, step, begin, time.perf_counter())

        return end

    def _add(self, name: str, step: int, begin: float, end: float) -> None:
        self.spans.append(Span(self._rank, name, step, begin - self._origin, end - self._origin, 0, step))

    def phases(self) -> dict[str, float]:
        """Return the seconds of each phase of the latest step, and of what overlapped them."""
        seconds: dict[str, float] = {}
        for span in reversed(list(self.spans)):
            if span.step != self.step:
                break
            seconds[span.name] = seconds.get(span.name, 0.0) + span.end - span.begin
        return dict(reversed(seconds.items()))

    def absolute_spans(self) -> list[Span]:
        """Return the spans so far in seconds of ``time.perf_counter``; another thread may ask."""
        by = self._origin
        return [span._replace(begin=span.begin + by, end=span.end + by) for span in list(self.spans)]


def _now() -> float:
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()  # calls return before the GPU is done
    return time.perf_counter()
