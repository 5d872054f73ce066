"""Cores that computing ranks share evenly: more ranks than cores take turns, and none is ahead of the others."""

from math import inf

import simpy


class SharedCores:
    """So many cores, on which ranks compute with one thread each.

    Of k ranks that compute at once each goes on at its full speed, or at ``cores / k`` of it where that is less.

    >>> env = simpy.Environment()
    >>> shared = SharedCores(env, cores=2)
    >>> ends = [shared.compute(seconds) for seconds in (1.0, 3.0, 3.0)]
    >>> env.run(ends[0]), env.now
    (None, 1.5)
    >>> env.run(ends[2]), env.now
    (None, 3.5)
    """

    def __init__(self, env: simpy.Environment, cores: int) -> None:
        self._env, self._cores = env, cores
        self._left: dict[simpy.Event, float] = {}  # seconds of computing, by what fires when they are over
        self._counted_at = 0.0
        self._changes = 0

    def compute(self, seconds: float) -> simpy.Event:
        """Begin to compute for so many seconds of a core; return what fires when they are over."""
        self._count()
        done = self._env.event()
        self._left[done] = seconds
        self._wait()
        return done

    @property
    def _speed(self) -> float:
        return min(1.0, self._cores / len(self._left)) if self._left else 1.0

    def _count(self) -> None:
        """Count what was computed since the last time."""
        computed = (self._env.now - self._counted_at) * self._speed
        self._left = {done: max(0.0, left - computed) for done, left in self._left.items()}
        self._counted_at = self._env.now

    def _wait(self) -> None:
        """Wait for those that are through first, unless another begins before."""
        self._changes += 1
        if self._left:
            self._env.process(self._end(self._changes, min(self._left.values(), default=inf)))

    def _end(self, change: int, least: float) -> "simpy.events.ProcessGenerator":
        yield self._env.timeout(least / self._speed)
        if change != self._changes:
            return
        self._count()
        through = [done for done, left in self._left.items() if left <= least * 1e-12]
        through = through or [min(self._left, key=self._left.__getitem__)]
        for done in through:
            del self._left[done]
            done.succeed()
        self._wait()
