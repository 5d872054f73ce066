"""The phases of one rank's training steps, timed by the clock of the device that computes.

On a GPU a phase ends where its work ends on the stream that computes. What other streams do meanwhile, as the sync of
buckets beside backward, counts only as far as this stream waits for it.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from collectives.records.spans import Span
from realcomm.execution.device_clock import device_clock
from realcomm.launching.group import own_device
from realcomm.launching.status import set_status

CLOCK_S = 10.0  # a GPU's clock is exact for so long; a new one waits for all that is queued


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
        self._spans: list[Span] = []
        self._marked: deque[tuple[str, int, float, float]] = deque()  # name, step and marks of phases not yet read
        self.step = -1
        self.current = ""  # the phase that is under way, or broke
        self._rank, self._label = rank, label
        self._clock, self._made = device_clock(own_device()), time.perf_counter()
        self._origin = self._paused = self.seconds(self.now())

    @property
    def spans(self) -> list[Span]:
        """The phases so far, and what overlapped them."""
        self._read(wait=True)
        return self._spans

    def now(self) -> float:
        """Return a mark of when the device has done what it was asked before."""
        return self._clock.now()

    def seconds(self, mark: float) -> float:
        """Return when the device got to a mark, in seconds of ``time.perf_counter``."""
        return self._clock.seconds(mark)

    def pause(self) -> None:
        """Stand still until ``resume``."""
        self._paused = self.seconds(self.now())

    def resume(self) -> None:
        """Go on from the time at which the watch was paused, or made."""
        self._origin += self.seconds(self.now()) - self._paused

    def start(self) -> None:
        """Begin a step."""
        self._read(wait=False)
        if time.perf_counter() - self._made > CLOCK_S:
            self._read(wait=True)
            self._clock, self._made = device_clock(own_device()), time.perf_counter()
        self.step += 1

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time what is done within the context; nothing is recorded of what raises."""
        self.current = name
        if self._label:
            set_status(f"{self._label} {self.step}, {name}")
        begin = self.now()
        yield
        self._marked.append((name, self.step, begin, self.now()))
        self._read(wait=False)
        self.current = ""

    def begin(self, name: str) -> Callable[[], None]:
        """Begin something that overlaps the phases of this step; return what ends it, which any thread may call."""
        begin, step = time.perf_counter(), self.step

        def end() -> None:
            self._add(name, step, begin, time.perf_counter())

        return end

    def _read(self, wait: bool) -> None:
        """Add the phases that the device has ended, or all."""
        while self._marked and (wait or self._clock.has_passed(self._marked[0][-1])):
            name, step, begin, end = self._marked.popleft()
            self._add(name, step, self.seconds(begin), self.seconds(end))

    def _add(self, name: str, step: int, begin: float, end: float) -> None:
        self._spans.append(Span(self._rank, name, step, begin - self._origin, end - self._origin, 0, step))

    def phases(self) -> dict[str, float]:
        """Return the seconds of each phase of the latest step, and of what overlapped them."""
        return self._phases_of(self.step, self.spans)

    def ended_phases(self) -> dict[str, float]:
        """Return those of the latest step that the device has ended; wait for the first step."""
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

    def absolute_spans(self) -> list[Span]:
        """Return the spans read so far in seconds of ``time.perf_counter``; another thread may ask."""
        by = self._origin
        return [span._replace(begin=span.begin + by, end=span.end + by) for span in list(self._spans)]
