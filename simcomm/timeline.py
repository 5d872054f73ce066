"""Timelines: tasks on the streams of devices, and a backward pass whose gradients are communicated as it runs."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Task(NamedTuple):
    """A task that takes ``seconds`` on a stream, after the earlier tasks with the numbers ``after``."""

    name: str
    stream: tuple[int, str]  # device, and its use: compute or communication
    seconds: float
    after: tuple[int, ...] = ()


class Interval(NamedTuple):
    """Begin and end of a task, in seconds."""

    begin: float
    end: float


@dataclass
class Program:
    """Tasks in the order in which each stream issues them.

    >>> program = Program()
    >>> forward = program.add("forward", (0, "compute"), 2.0)
    >>> gather = program.add("gather", (0, "comm"), 3.0)
    >>> _ = program.add("backward", (0, "compute"), 1.0, gather)
    >>> program.intervals()[-1]
    Interval(begin=3.0, end=4.0)
    """

    tasks: list[Task] = field(default_factory=list)

    def add(self, name: str, stream: tuple[int, str], seconds: float, *after: int) -> int:
        """Add a task. Return its number, to pass as ``after`` of later tasks."""
        self.tasks.append(Task(name, stream, seconds, after))
        return len(self.tasks) - 1

    def intervals(self) -> list[Interval]:
        """Return the interval of each task, which begins once its stream is free and its predecessors have ended."""
        intervals, free_at = list[Interval](), defaultdict[tuple[int, str], float](float)
        for task in self.tasks:
            begin = max([free_at[task.stream], *(intervals[number].end for number in task.after)])
            free_at[task.stream] = begin + task.seconds
            intervals.append(Interval(begin, begin + task.seconds))
        return intervals


class Overlap(NamedTuple):
    """The timeline of a backward pass that begins at 0 and of its gradient buckets, in seconds."""

    computed: float  # end of backward's compute
    buckets: list[tuple[float, float]]  # begin and end

    @property
    def finished(self) -> float:
        """End of compute and of all buckets."""
        return max([self.computed, *(end for _, end in self.buckets)])


def overlap(backward_s: float, ready: Sequence[float], seconds: Sequence[float], slowdown: float) -> Overlap:
    """Return the timeline of a backward pass that takes ``backward_s`` seconds alone, and of its buckets.

    Buckets are sent one after the other. Bucket i is ready when the share ``ready[i]`` of backward is computed, and
    takes ``seconds[i]`` alone. ``slowdown`` is the overlap slowdown: one second of communication delays backward by so
    many seconds. Up to 1, backward continues at reduced speed; above 1, it stops and the bucket takes longer.

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
