"""The timeline of a backward whose gradients travel while it goes on, for any algorithm that carries them.

Buckets travel one after the other, each when it is full. What travels takes cores and memory from backward: a bucket
that takes c seconds alone costs backward ``steal`` x c while they overlap. Up to a steal of 1 backward goes on at the
rest of its speed; above, it stands still and the bucket takes longer.
"""

from collections.abc import Sequence
from typing import NamedTuple


class Overlap(NamedTuple):
    """When a backward that began at 0 had computed, and when each bucket travelled; seconds."""

    computed: float
    buckets: list[tuple[float, float]]  # begin and end

    @property
    def finished(self) -> float:
        """When both were done."""
        return max([self.computed, *(end for _, end in self.buckets)])


def overlap(backward_s: float, ready: Sequence[float], seconds: Sequence[float], steal: float) -> Overlap:
    """Return the timeline of a backward of ``backward_s`` seconds and its buckets.

    Bucket i is full when the share ``ready[i]`` of backward is computed, and takes ``seconds[i]`` when nothing else
    does anything.

    >>> overlap(10.0, ready=[0.5, 1.0], seconds=[2.0, 1.0], steal=0.5)
    Overlap(computed=11.0, buckets=[(5.0, 7.0), (11.0, 12.0)])
    """
    pace, stretch = max(0.0, 1.0 - steal), max(1.0, steal)
    now, done, travelled = 0.0, 0.0, list[tuple[float, float]]()
    computed: float | None = None
    for share, alone in zip(ready, seconds, strict=True):
        wait = max(0.0, share * backward_s - done)
        now, done = now + wait, done + wait
        left = backward_s - done
        if left <= 0 and computed is None:
            computed = now
        beside = min(alone, left / pace) if pace > 0 else alone * (left > 0)  # seconds of it that backward goes on
        if computed is None and beside < alone:
            computed = now + beside * stretch
        travelled.append((now, now + beside * stretch + alone - beside))
        now, done = travelled[-1][1], done + beside * pace
    return Overlap(now + backward_s - done if computed is None else computed, travelled)
