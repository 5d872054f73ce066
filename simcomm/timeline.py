"""Compute the timeline of a backward pass that communicates gradient buckets while it runs."""

from collections.abc import Sequence
from typing import NamedTuple


class Overlap(NamedTuple):
    """The timeline of a backward pass that begins at 0, with the begin and end of each gradient bucket in seconds."""

    computed: float  # end of backward's compute
    buckets: list[tuple[float, float]]  # begin and end

    @property
    def finished(self) -> float:
        """The time at which compute and all buckets have ended, in seconds."""
        return max([self.computed, *(end for _, end in self.buckets)])


def overlap(backward_s: float, ready: Sequence[float], seconds: Sequence[float], slowdown: float) -> Overlap:
    """Return the timeline of a backward pass, and of the gradient buckets that are sent while it runs.

    Without buckets, backward takes ``backward_s`` seconds. Buckets are sent one after the other. Bucket i is ready when
    the share ``ready[i]`` of backward is computed, and takes ``seconds[i]`` if nothing else runs. ``slowdown`` is the
    overlap slowdown: by how many seconds one second of communication delays backward. Up to 1, backward continues at
    reduced speed. Above 1, it stops and the bucket takes longer.

    >>> overlap(10.0, ready=[0.5, 1.0], seconds=[2.0, 1.0], slowdown=0.5)
    Overlap(computed=11.0, buckets=[(5.0, 7.0), (11.0, 12.0)])
    """
    speed, stretch = max(0.0, 1.0 - slowdown), max(1.0, slowdown)
    now, done, intervals = 0.0, 0.0, list[tuple[float, float]]()
    computed: float | None = None
    for share, alone in zip(ready, seconds, strict=True):
        wait = max(0.0, share * backward_s - done)
        now, done = now + wait, done + wait
        remaining = backward_s - done
        if remaining <= 0 and computed is None:
            computed = now
        overlapped = min(alone, remaining / speed) if speed > 0 else alone * (remaining > 0)
        if computed is None and overlapped < alone:
            computed = now + overlapped * stretch
        intervals.append((now, now + overlapped * stretch + alone - overlapped))
        now, done = intervals[-1][1], done + overlapped * speed
    return Overlap(now + backward_s - done if computed is None else computed, intervals)
