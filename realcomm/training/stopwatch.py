"""Time the phases of one rank's training steps with the clock of its device.

On a GPU, a phase ends when its work on the compute stream ends. Work on other streams, such as buckets of gradients
during backward, counts only while the compute stream waits for it.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from collectives.records.spans import Span
from realcomm.execution.device_clock import device_clock
from realcomm.launching.group import own_device
from realcomm.launching.status import set_status

CLOCK_S = 10.0  # a GPU's clock is exact for this long; a new one waits for queued work


class Stopwatch:
    """Records the phases of one rank's steps as spans, in seconds since the stopwatch was created.

    >>> watch = Stopwatch(rank=0)
    >>> watch.start()
    >>> with watch.phase("forward"):
    ...     pass
    >>> [(span.step, span.name) for span in watch.spans]
    [(0, 'forward')]
    """

    def __init__(self, rank: int, label: str = "") -> None:
        """Create a rank's stopwatch. If ``label`` is given, the rank's status shows the label, step and phase."""
        self._spans: list[Span] = []
        self._marked: deque[tuple[str, int, float, float]] = deque()  # name, step and marks of phases not yet read
        self.step = -1
        self.current = ""  # the current or failed phase
        self._rank, self._label = rank, label
        self._clock, self._made = device_clock(own_device()), time.perf_counter()
        self._origin = self._paused = self.seconds(self.now())

    @property
    def spans(self) -> list[Span]:
        """The spans of all phases and overlapping work so far. Reading this waits until the device has finished."""
        self._read(wait=True)
        return self._spans

    def now(self) -> float:
        """Return a mark for the instant at which the device has finished all work queued so far."""
        return self._clock.now()

    def seconds(self, mark: float) -> float:
        """Return the time of a mark, in seconds of ``time.perf_counter``. Wait until the device has reached it."""
        return self._clock.seconds(mark)

    def pause(self) -> None:
        """Stop the clock until ``resume``."""
        self._paused = self.seconds(self.now())

    def resume(self, instant: float | None = None) -> None:
        """Continue the clock, as if no time had passed from ``pause`` until ``instant``. Default: now.

        ``instant`` is in seconds of ``time.perf_counter``.
        """
        self._origin += (self.seconds(self.now()) if instant is None else instant) - self._paused

    def start(self) -> None:
        self._read(wait=False)
        if time.perf_counter() - self._made > CLOCK_S:
            self._read(wait=True)
            self._clock, self._made = device_clock(own_device()), time.perf_counter()
        self.step += 1

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time the work within the context. Nothing is recorded if the work raises."""
        self.current = name
        if self._label:
            set_status(f"{self._label} {self.step}, {name}")
        begin = self.now()
        yield
        self._marked.append((name, self.step, begin, self.now()))
        self._read(wait=False)
        self.current = ""

    def begin(self, name: str) -> Callable[[], None]:
        """Begin a span that overlaps phases of this step. Return a function that ends the span from any thread."""
        begin, step = time.perf_counter(), self.step

        def end() -> None:
            self._add(name, step, begin, time.perf_counter())

        return end

    def _read(self, wait: bool) -> None:
        """Record the phases that the device has finished. If ``wait`` is true, first wait until all are finished."""
        while self._marked and (wait or self._clock.has_passed(self._marked[0][-1])):
            name, step, begin, end = self._marked.popleft()
            self._add(name, step, self.seconds(begin), self.seconds(end))

    def _add(self, name: str, step: int, begin: float, end: float) -> None:
        self._spans.append(Span(self._rank, name, step, begin - self._origin, end - self._origin, 0, step))

    def phases(self) -> dict[str, float]:
        """Return the time in seconds of each phase and overlapping span of the latest step."""
        return self._phases_of(self.step, self.spans)

    def ended_phases(self) -> dict[str, float]:
        """Return the seconds of each phase of the latest finished step. If none is finished, wait for the latest."""
        ended = next((span.step for span in reversed(list(self._spans)) if span.name == "optimizer"), None)
        return self.phases() if ended is None else self._phases_of(ended, self._spans)

    def _phases_of(self, step: int, spans: list[Span]) -> dict[str, float]:
        seconds: dict[str, float] = {}
        for span in reversed(list(spans)):
            if span.step < step:
                break
            if span.step == step:
                seconds[span.name] = seconds.get(span.name, 0.0) + span.end - span.begin
        return dict(reversed(seconds.items()))
