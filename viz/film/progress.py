"""How far a trace is at a time, in words: training steps, steps of all ranks, or messages."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from collectives.records.trace import Trace

MOST_MARKS = 40  # on the time bar; more would crowd


class Interval(NamedTuple):
    """From the begin to the end of one step or message, in seconds."""

    begin: float
    end: float


class Progress:
    """The steps or messages of a trace in the order of their begins, to tell which of them is under way.

    Steps of a program are counted only where every rank sends in each of them: elsewhere the third step of one rank
    may come before the first of another, and messages are counted instead.

    >>> from collectives import Message
    >>> Progress(Trace("x", "predicted", 2, 3.0, [Message(0, 1, 0, 0, 10, 0.0, 3.0)])).describe(1.5)
    'message 1 of 1'
    """

    def __init__(self, trace: Trace) -> None:
        training = [(span.step, Interval(span.begin, span.end)) for span in trace.spans if span.name != "reduce"]
        steps = [(message.step, Interval(message.begin, message.end)) for message in trace.messages]
        in_step = len({(m.src, m.step) for m in trace.messages}) == trace.world_size * len({step for step, _ in steps})
        self.unit = "training step" if training else "step" if in_step else "message"
        numbered = training or (steps if in_step else list(enumerate(interval for _, interval in steps)))
        self._intervals = sorted(_merge(numbered))
        self._begin = np.array([interval.begin for interval in self._intervals])
        self._end = np.array([interval.end for interval in self._intervals])
        self._reducing = [(span.begin, span.end) for span in trace.spans if span.name == "reduce"]
        self._elapsed = trace.elapsed

    def describe(self, time: float) -> str:
        """Return such as ``step 3 of 14`` or ``messages 4 to 6 of 12``; ``reducing``, ``done`` or "" between them."""
        now = np.flatnonzero((self._begin <= time) & (time < self._end))
        if not len(now):
            return self._describe_pause(time)
        low, high, total = int(now[0]) + 1, int(now[-1]) + 1, len(self._intervals)
        return f"{self.unit} {low} of {total}" if low == high else f"{self.unit}s {low} to {high} of {total}"

    def _describe_pause(self, time: float) -> str:
        if any(begin <= time < end for begin, end in self._reducing):
            return "reducing"
        return "done" if time >= self._elapsed else ""

    def marks(self) -> npt.NDArray[np.float64]:
        """Return when each step or message begins, as shares of the whole; nothing where they would crowd."""
        return self._begin / self._elapsed if len(self._begin) <= MOST_MARKS else np.zeros(0)


def _merge(numbered: list[tuple[int, Interval]]) -> list[Interval]:
    """Return one interval for all that have the same number."""
    merged: dict[int, Interval] = {}
    for number, interval in numbered:
        other = merged.get(number, interval)
        merged[number] = Interval(min(other.begin, interval.begin), max(other.end, interval.end))
    return list(merged.values())
