"""How far a trace is at a time, in words: training steps, steps of all ranks, or messages."""

import numpy as np
import numpy.typing as npt

from collectives.records.columnar import Floats, Ints
from collectives.records.trace import Trace

MOST_MARKS = 40  # on the time bar; more would crowd


class Progress:
    """The steps or messages of a trace in the order of their begins, to tell which of them is under way.

    Steps of a program are counted only where every rank sends in each of them: elsewhere the third step of one rank
    may come before the first of another, and messages are counted instead.

    >>> from collectives import Message
    >>> Progress(Trace("x", "predicted", 2, 3.0, [Message(0, 1, 0, 0, 10, 0.0, 3.0)])).describe(1.5)
    'message 1 of 1'
    """

    def __init__(self, trace: Trace) -> None:
        messages, phases = trace.messages, trace.spans.select(~trace.spans.named("reduce"))
        step, senders = messages.step, len(np.unique(messages.src * (1 << 40) + messages.step))
        in_step = senders == trace.world_size * len(np.unique(step))
        self.unit = "training step" if len(phases) else "step" if in_step else "message"
        if len(phases):
            self._begin, self._end = _merge(phases.step, phases.begin, phases.end)
        else:
            self._begin, self._end = _merge(step if in_step else np.arange(len(messages)), messages.begin, messages.end)
        reducing = trace.spans.select(trace.spans.named("reduce"))
        self._reducing = reducing.begin, reducing.end
        self._elapsed, self._failure = trace.elapsed, trace.failure

    def describe(self, time: float) -> str:
        """Return such as ``step 3 of 14`` or ``messages 4 to 6 of 12``; ``reducing``, ``done`` or "" between them.

        Steps are counted from 0, messages from 1.
        """
        now = np.flatnonzero((self._begin <= time) & (time < self._end))
        if not len(now):
            return self._describe_pause(time)
        first = int(self.unit == "message")  # steps are counted like ranks and chunks
        low, high, total = int(now[0]) + first, int(now[-1]) + first, len(self._begin)
        return f"{self.unit} {low} of {total}" if low == high else f"{self.unit}s {low} to {high} of {total}"

    def _describe_pause(self, time: float) -> str:
        begin, end = self._reducing
        if ((begin <= time) & (time < end)).any():
            return "reducing"
        if self._failure is not None and time >= self._failure.at:
            return f"rank {self._failure.rank} has gone wrong"
        return "done" if time >= self._elapsed else ""

    def marks(self) -> npt.NDArray[np.float64]:
        """Return when each step or message begins, as shares of the whole; nothing where they would crowd."""
        return self._begin / self._elapsed if len(self._begin) <= MOST_MARKS else np.zeros(0)


def _merge(number: Ints, begin: Floats, end: Floats) -> tuple[Floats, Floats]:
    """Return begins and ends, sorted, of one interval for all that have the same number."""
    numbers, where = np.unique(number, return_inverse=True)
    first, last = np.full(len(numbers), np.inf), np.full(len(numbers), -np.inf)
    np.minimum.at(first, where, begin)
    np.maximum.at(last, where, end)
    order = np.lexsort((last, first))
    return first[order], last[order]
