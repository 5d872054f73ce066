"""Timelines: tasks on the streams of devices, and a backward whose gradients travel while it goes on.

A step is tasks, each on a stream that does one after the other, and what waits for what; its time is its last end.
``overlap`` is the step of data parallelism alone: buckets travel one after the other, each when it is full.
"""

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Task(NamedTuple):
    """Something that takes ``seconds`` on a stream, in the order of a list, after the tasks of these numbers."""

    name: str
    stream: tuple[int, str]  # device and what of it: compute, communication
    seconds: float
    after: tuple[int, ...] = ()


class Interval(NamedTuple):
    """When a task began and ended."""

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
        """Add a task; return its number, for those that wait for it."""
        self.tasks.append(Task(name, stream, seconds, after))
        return len(self.tasks) - 1

    def intervals(self) -> list[Interval]:
        """Return when each task begins and ends: once its stream is free and all that it waits for is done.

        Raise ValueError where tasks wait for each other in a circle.
        """
        followers, missing = defaultdict[int, list[int]](list), [0] * len(self.tasks)
        last: dict[tuple[int, str], int] = {}
        for number, task in enumerate(self.tasks):
            before = {*task.after} | ({last[task.stream]} if task.stream in last else set())
            last[task.stream] = number
            missing[number] = len(before)
            for each in before:
                followers[each].append(number)
        begins, found = [0.0] * len(self.tasks), dict[int, Interval]()
        ready = deque(number for number, count in enumerate(missing) if not count)
        while ready:
            number = ready.popleft()
            found[number] = Interval(begins[number], begins[number] + self.tasks[number].seconds)
            for each in followers[number]:
                begins[each] = max(begins[each], found[number].end)
                missing[each] -= 1
                if not missing[each]:
                    ready.append(each)
        if len(found) < len(self.tasks):
            raise ValueError(f"{len(self.tasks) - len(found)} tasks wait for each other")
        return [found[number] for number in range(len(self.tasks))]


class Overlap(NamedTuple):
    """When a backward that began at 0 had computed, and when each bucket travelled; seconds."""

    computed: float
    buckets: list[tuple[float, float]]  # begin and end

    @property
    def finished(self) -> float:
        """When both were done."""
        return max([self.computed, *(end for _, end in self.buckets)])


def overlap(backward_s: float, ready: Sequence[float], seconds: Sequence[float], slowdown: float) -> Overlap:
    """Return the timeline of a backward of ``backward_s`` seconds and its buckets.

    Bucket i is full when the share ``ready[i]`` of backward is computed, and takes ``seconds[i]`` when nothing else
    does anything. What travels takes cores and memory from backward: while they overlap, a second of it costs backward
    ``slowdown`` seconds. Up to a slowdown of 1 backward goes on at the rest of its speed; above, it stands still and
    the bucket takes longer.

    >>> overlap(10.0, ready=[0.5, 1.0], seconds=[2.0, 1.0], slowdown=0.5)
    Overlap(computed=11.0, buckets=[(5.0, 7.0), (11.0, 12.0)])
    """
    pace, stretch = max(0.0, 1.0 - slowdown), max(1.0, slowdown)
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
