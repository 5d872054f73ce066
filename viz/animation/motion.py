"""Compute the position of each message in each frame of an animation, without drawing."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from collectives.records.columns import Floats, Ints
from collectives.records.trace import Trace
from viz.layout.geometry import Edge, Layout, Line


def point_along(line: Line, share: float) -> tuple[float, float]:
    """Return the point at the fraction ``share`` (0 to 1) of the length of ``line``.

    >>> point_along(np.array([[0.0, 0.0], [10.0, 0.0]]), 0.25)
    (2.5, 0.0)
    """
    lengths = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(line, axis=0).T))])
    wanted = min(max(share, 0.0), 1.0) * lengths[-1]
    return float(np.interp(wanted, lengths, line[:, 0])), float(np.interp(wanted, lengths, line[:, 1]))


def length(line: Line) -> float:
    """Return the length of ``line`` in pixels."""
    return float(np.hypot(*np.diff(line, axis=0).T).sum())


@dataclass(frozen=True)
class Motion:
    """The messages of an animation, as arrays with one entry per message.

    Message i moves along ``lines[line[i]]``, and is visible in the frames from ``first[i]`` to ``last[i] - 1``.
    """

    times: Floats  # times of the frames
    begin: Floats
    end: Floats
    nbytes: Floats
    src: Ints
    dst: Ints
    chunk: Ints
    line: Ints  # index into ``lines``
    lines: list[Line]
    edges: list[list[Edge]]  # the edges of each line
    first: Ints
    last: Ints

    def active(self, frame: int) -> Ints:
        """Return the indices of the messages that a frame shows."""
        return np.flatnonzero((self.first <= frame) & (frame < self.last))

    def share(self, index: int, frame: int) -> float:
        """Return the position of a message in a frame, as a fraction of its line from 0 to 1.

        The result is 0.5 if the message starts and ends between two frames.
        """
        begin, end, now = self.begin[index], self.end[index], self.times[frame]
        return float((now - begin) / (end - begin)) if begin <= now < end else 0.5

    def position(self, index: int, frame: int, back: float = 0.0) -> tuple[float, float]:
        """Return the position of a message's dot in a frame.

        ``back`` moves the dot back along its line, by a fraction of the line's length.
        """
        return point_along(self.lines[self.line[index]], self.share(index, frame) - back)

    def rate(self, index: Ints) -> Floats:
        """Return each message's average rate from its start to its end, in bytes/s."""
        return self.nbytes[index] / np.maximum(self.end[index] - self.begin[index], 1e-12)


def follow_messages(trace: Trace, layout: Layout, times: Floats) -> Motion:
    """Return the movement of a trace's messages over a layout. ``times`` has the time of each frame in seconds.

    A message is visible in each frame during which it is in flight, and in at least one frame.
    """
    messages = trace.messages
    begin, end, src, dst = messages.begin, messages.end, messages.src, messages.dst
    first, last = np.searchsorted(times, begin), np.searchsorted(times, end)
    first = np.where(first == last, np.minimum(first, max(len(times) - 2, 0)), first)
    key, line = np.unique(np.stack([src, dst, messages.route]), axis=1, return_inverse=True)
    known = [(a, b, messages.routes[route]) for a, b, route in key.T.tolist()]
    return Motion(
        times, begin, end, messages.nbytes.astype(float), src=src, dst=dst, chunk=messages.chunk,
        line=line.reshape(-1).astype(np.int64), lines=[layout.route_line(*key) for key in known],
        edges=[list(pairwise(route)) for _, _, route in known],
        first=first.astype(np.int64), last=np.maximum(last, first + 1).astype(np.int64),
    )  # fmt: skip


def phases_at(trace: Trace, time: float) -> dict[int, str]:
    """Return the name of the span that each rank is in at ``time``. Ranks outside any span are omitted."""
    return {span.rank: span.name for span in trace.spans if span.begin <= time < span.end}


def link_use(motion: Motion, active: Ints, bandwidths: dict[Edge, float]) -> dict[Edge, float]:
    """Return each link's utilization from 0 to 1, if each ``active`` message is sent at its average rate."""
    used: dict[Edge, float] = {}
    for index, rate in zip(active, motion.rate(active), strict=True):
        for edge in motion.edges[motion.line[index]]:
            used[edge] = used.get(edge, 0.0) + float(rate) / bandwidths.get(edge, np.inf)
    return {edge: min(share, 1.0) for edge, share in used.items()}


FRAMES_TO_FOLLOW = 3  # frames in which a dot must be for the eye to follow it


def frame_times(trace: Trace, count: int) -> Floats:
    """Return the time within the run, in seconds, that each of ``count`` frames shows.

    The times range from 0 to ``trace.elapsed``. They are evenly spaced if at least 90 % of the messages last for
    ``FRAMES_TO_FOLLOW`` frames or more. Otherwise, busy periods get more frames, so that viewers can follow short
    messages. If most messages are still too short, the beginning of a long run gets half of the frames. In a trace
    without messages, spans determine the frames.

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
    # half of the frames are spread evenly over time, and half over the moments at which something begins or ends
    grain = trace.elapsed * 1e-6  # moments that are closer are one
    moments = np.concatenate([[0.0], begin, end, [trace.elapsed]])
    moments = np.unique((moments / grain).round() * grain).clip(0.0, trace.elapsed)
    positions = 0.5 * moments / moments[-1] + 0.5 * np.linspace(0.0, 1.0, len(moments))
    shares = np.linspace(0.0, 1.0, count)
    busy: Floats = np.interp(shares, positions, moments)
    if _weighted_median(_frames_covered(busy, begin, end), end - begin) >= FRAMES_TO_FOLLOW:
        return busy
    slow_until = begin.min() + float(np.median(end - begin)) * count / (4 * FRAMES_TO_FOLLOW)
    if slow_until >= trace.elapsed / 2:
        return even
    slow: Floats = np.interp(shares, [0.0, 0.5, 1.0], [0.0, slow_until, trace.elapsed])
    return slow


def _frames_covered(times: Floats, begin: Floats, end: Floats) -> Floats:
    """Return the number of frames during which each event is active, including fractions of frames."""
    index = np.arange(len(times))
    return np.interp(end, times, index) - np.interp(begin, times, index)


def _weighted_median(values: Floats, weights: Floats) -> float:
    order = np.argsort(values)
    heaped = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(heaped, heaped[-1] / 2)])
