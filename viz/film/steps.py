"""How far a trace is at a time, in the words that hold for it: training steps, steps of all ranks, or messages."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from collectives.records.trace import Trace

MOST_MARKS = 40  # beyond which they would crowd


class Stretch(NamedTuple):
    """From the begin to the end of one step or message."""

    begin: float
    end: float


class Steps:
    """The stretches of a trace that can be counted, in the order of their begins, and what one is called.

    Steps of a program can be counted only where every rank sends in each of them: elsewhere the third step of one rank
    may come before the first of another, and messages are counted instead.
    """

    def __init__(self, trace: Trace) -> None:
        training = [(span.step, Stretch(span.begin, span.end)) for span in trace.spans if span.name != "reduce"]
        steps = [(message.step, Stretch(message.begin, message.end)) for message in trace.messages]
        in_step = len({(m.src, m.step) for m in trace.messages}) == trace.world_size * len({step for step, _ in steps})
        self.name = "training step" if training else "step" if in_step else "message"
        numbered = training or (steps if in_step else list(enumerate(stretch for _, stretch in steps)))
        self._stretches = sorted(_merged(numbered))
        self._begin = np.array([stretch.begin for stretch in self._stretches])
        self._end = np.array([stretch.end for stretch in self._stretches])
        self._reducing = [(span.begin, span.end) for span in trace.spans if span.name == "reduce"]
        self._elapsed = trace.elapsed

    def words(self, time: float) -> str:
        """Such as ``step 3 of 14`` or ``messages 4 to 6 of 12``; what else happens where none is under way."""
        now = np.flatnonzero((self._begin <= time) & (time < self._end))
        if not len(now):
            return self._otherwise(time)
        low, high, total = int(now[0]) + 1, int(now[-1]) + 1, len(self._stretches)
        return f"{self.name} {low} of {total}" if low == high else f"{self.name}s {low} to {high} of {total}"

    def _otherwise(self, time: float) -> str:
        if any(begin <= time < end for begin, end in self._reducing):
            return "reducing"
        return "done" if time >= self._elapsed else ""

    def marks(self) -> npt.NDArray[np.float64]:
        """When each begins, as shares of the whole; none where they would crowd."""
        return self._begin / self._elapsed if len(self._begin) <= MOST_MARKS else np.zeros(0)


def _merged(numbered: list[tuple[int, Stretch]]) -> list[Stretch]:
    """One stretch for all with the same number."""
    merged: dict[int, Stretch] = {}
    for number, stretch in numbered:
        other = merged.get(number, stretch)
        merged[number] = Stretch(min(other.begin, stretch.begin), max(other.end, stretch.end))
    return list(merged.values())
