"""The moment of the trace that each frame of an animation shows."""

import numpy as np
import numpy.typing as npt

from collectives.records.trace import Trace

Floats = npt.NDArray[np.float64]

FRAMES_TO_FOLLOW = 3  # the eye can follow a dot that is there for so many frames


def frame_times(trace: Trace, count: int) -> Floats:
    """Return the moment of each of ``count`` frames, from 0 to ``elapsed``, in seconds.

    They are evenly spaced where that lets most messages (spans, if there are none) be followed. Where some would be
    too short, time runs slower where much happens. Where that leaves most too short as well, the beginning is slow
    and the rest runs fast.

    >>> from collectives import Message
    >>> frame_times(Trace("x", "predicted", 2, 3.0, [Message(0, 1, 0, 0, 10, 0.0, 3.0)]), 4)
    array([0., 1., 2., 3.])
    """
    events = trace.messages if len(trace.messages) else trace.spans
    begin, end = events.begin, events.end
    even = np.linspace(0.0, trace.elapsed, count)
    if not len(events):
        return even
    if np.quantile(_frames_covered(even, begin, end), 0.1) >= FRAMES_TO_FOLLOW:
        return even
    busy = _slow_where_busy(_distinct_moments(begin, end, trace.elapsed), count)
    if _weighted_median(_frames_covered(busy, begin, end), end - begin) >= FRAMES_TO_FOLLOW:
        return busy
    slow_until = begin.min() + float(np.median(end - begin)) * count / (4 * FRAMES_TO_FOLLOW)
    return even if slow_until >= trace.elapsed / 2 else _slow_beginning(slow_until, trace.elapsed, count)


def _frames_covered(times: Floats, begin: Floats, end: Floats) -> Floats:
    """Return how many frames each event lasts, fractions included."""
    index = np.arange(len(times))
    return np.interp(end, times, index) - np.interp(begin, times, index)


def _weighted_median(values: Floats, weights: Floats) -> float:
    order = np.argsort(values)
    heaped = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(heaped, heaped[-1] / 2)])


def _distinct_moments(begin: Floats, end: Floats, elapsed: float) -> Floats:
    """Return when something begins or ends, from 0 to ``elapsed``, moments closer than a millionth of it merged."""
    grain = elapsed * 1e-6
    return np.unique((np.concatenate([[0.0], begin, end, [elapsed]]) / grain).round() * grain).clip(0.0, elapsed)


def _slow_where_busy(moments: Floats, count: int) -> Floats:
    """Return frame times of which half are spread evenly over time and half evenly over ``moments``."""
    film = 0.5 * moments / moments[-1] + 0.5 * np.linspace(0.0, 1.0, len(moments))
    return np.interp(np.linspace(0.0, 1.0, count), film, moments)


def _slow_beginning(until: float, elapsed: float, count: int) -> Floats:
    """Return frame times of which half are before ``until`` and half after it."""
    return np.interp(np.linspace(0.0, 1.0, count), [0.0, 0.5, 1.0], [0.0, until, elapsed])
