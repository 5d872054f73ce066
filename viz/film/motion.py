"""What is where at which time: the pure part of the animation, without a picture."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from collectives.records.trace import Trace
from viz.layout.geometry import Edge, Layout, Line

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

FRAMES_TO_FOLLOW = 3  # the eye follows a dot that is there for so many frames


def along(path: Line, share: float) -> tuple[float, float]:
    """The point after ``share``, from 0 to 1, of the way along ``path``."""
    lengths = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(path, axis=0).T))])
    wanted = min(max(share, 0.0), 1.0) * lengths[-1]
    return float(np.interp(wanted, lengths, path[:, 0])), float(np.interp(wanted, lengths, path[:, 1]))


def length(path: Line) -> float:
    """How long ``path`` is."""
    return float(np.hypot(*np.diff(path, axis=0).T).sum())


def frame_times(trace: Trace, count: int) -> Floats:
    """The moment of each of ``count`` frames, from 0 to ``elapsed``; even where that shows what happens.

    Where some messages (spans, if there are none) would be too short to follow, time runs slower where much happens.
    Where that leaves most too short as well, the beginning is slow and the rest runs fast.
    """
    events = trace.messages or trace.spans
    begin, end = np.array([(event.begin, event.end) for event in events], float).T
    even = np.linspace(0.0, trace.elapsed, count)
    if np.quantile(_frames_covered(even, begin, end), 0.1) >= FRAMES_TO_FOLLOW:
        return even
    busy = _slowed_where_busy(_distinct_moments(begin, end, trace.elapsed), count)
    if _typical(_frames_covered(busy, begin, end), end - begin) >= FRAMES_TO_FOLLOW:
        return busy
    slow_until = begin.min() + float(np.median(end - begin)) * count / (4 * FRAMES_TO_FOLLOW)
    return even if slow_until >= trace.elapsed / 2 else _slow_beginning(slow_until, trace.elapsed, count)


def _frames_covered(times: Floats, begin: Floats, end: Floats) -> Floats:
    """How many frames each event lasts, fractions included."""
    index = np.arange(len(times))
    return np.interp(end, times, index) - np.interp(begin, times, index)


def _typical(values: Floats, weights: Floats) -> float:
    """The weighted median."""
    order = np.argsort(values)
    heaped = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(heaped, heaped[-1] / 2)])


def _distinct_moments(begin: Floats, end: Floats, elapsed: float) -> Floats:
    """When something begins or ends, from 0 to ``elapsed``, less what is too close to tell apart."""
    grain = elapsed * 1e-6
    return np.unique((np.concatenate([[0.0], begin, end, [elapsed]]) / grain).round() * grain).clip(0.0, elapsed)


def _slowed_where_busy(moments: Floats, count: int) -> Floats:
    """Half of the film is shared out evenly over time, half evenly over what happens."""
    film = 0.5 * moments / moments[-1] + 0.5 * np.linspace(0.0, 1.0, len(moments))
    return np.interp(np.linspace(0.0, 1.0, count), film, moments)


def _slow_beginning(until: float, elapsed: float, count: int) -> Floats:
    """Half of the film for the time before ``until``, half for all the rest."""
    return np.interp(np.linspace(0.0, 1.0, count), [0.0, 0.5, 1.0], [0.0, until, elapsed])


@dataclass(frozen=True)
class Motion:
    """All messages as arrays, one entry each, and the frames ``[first, last)`` that show each of them."""

    times: Floats  # of the frames
    begin: Floats
    end: Floats
    nbytes: Floats
    src: Ints
    dst: Ints
    step: Ints
    chunk: Ints
    path: Ints  # index into ``paths``
    paths: list[Line]
    edges: list[list[Edge]]  # of each path
    first: Ints
    last: Ints

    def active(self, frame: int) -> Ints:
        """Indices of the messages that a frame shows."""
        return np.flatnonzero((self.first <= frame) & (frame < self.last))

    def share(self, index: int, frame: int) -> float:
        """How far a message is at a frame, from 0 to 1; half way if it is too short for any frame's moment."""
        begin, end, now = self.begin[index], self.end[index], self.times[frame]
        return float((now - begin) / (end - begin)) if begin <= now < end else 0.5

    def place(self, index: int, frame: int, back: float = 0.0) -> tuple[float, float]:
        """Where a message's dot is at a frame, or where it was a share ``back`` of its way before."""
        return along(self.paths[self.path[index]], self.share(index, frame) - back)

    def rate(self, index: Ints) -> Floats:
        """Bytes per second of messages, each averaged from its begin to its end."""
        return self.nbytes[index] / np.maximum(self.end[index] - self.begin[index], 1e-12)


def motion(trace: Trace, layout: Layout, times: Floats) -> Motion:
    """The messages of a trace on a layout; each is shown in every frame whose moment it covers, and in at least one."""
    messages = trace.messages
    begin, end = np.array([m.begin for m in messages], float), np.array([m.end for m in messages], float)
    first, last = np.searchsorted(times, begin), np.searchsorted(times, end)
    first = np.where(first == last, np.minimum(first, max(len(times) - 2, 0)), first)
    known: dict[tuple[int, int, tuple[str, ...]], int] = {}
    path = [known.setdefault((m.src, m.dst, m.route), len(known)) for m in messages]
    return Motion(
        times, begin, end, np.array([m.nbytes for m in messages], float),
        src=np.array([m.src for m in messages], np.int64), dst=np.array([m.dst for m in messages], np.int64),
        step=np.array([m.step for m in messages], np.int64), chunk=np.array([m.chunk for m in messages], np.int64),
        path=np.array(path, np.int64), paths=[layout.path(*key) for key in known],
        edges=[list(pairwise(route)) for _, _, route in known],
        first=first.astype(np.int64), last=np.maximum(last, first + 1).astype(np.int64),
    )  # fmt: skip


def phases_at(trace: Trace, time: float) -> dict[int, str]:
    """What each rank does at a time, if it is in a span."""
    return {span.rank: span.name for span in trace.spans if span.begin <= time < span.end}


def link_use(moving: Motion, active: Ints, bandwidths: dict[Edge, float]) -> dict[Edge, float]:
    """Share of each link's bandwidth, from 0 to 1, that the active messages take, each at its average rate."""
    used: dict[Edge, float] = {}
    for index, rate in zip(active, moving.rate(active), strict=True):
        for edge in moving.edges[moving.path[index]]:
            used[edge] = used.get(edge, 0.0) + float(rate) / bandwidths.get(edge, np.inf)
    return {edge: min(share, 1.0) for edge, share in used.items()}
