"""Timelines: tasks on the streams of devices, and a backward whose gradients travel while it goes on.

A step is tasks, each on a stream that does one after the other, and what waits for what; its time is its last end.
``overlap`` is the step of data parallelism alone: buckets travel one after the other, each when it is full.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

# Of all traffic that goes on at once the pace of each: the share that is left of its rate alone.
Paces = Callable[[frozenset[Hashable]], Mapping[Hashable, float]]
DONE = 1e-12  # of a task's seconds: so little left of them is nothing


class Task(NamedTuple):
    """Something that takes ``seconds`` on a stream, in the order of a list, after the tasks of these numbers.

    ``traffic`` is what it puts on links, None where nothing: its seconds are those that it takes with links to itself.
    """

    name: str
    stream: tuple[int, str]  # device and what of it: compute, communication
    seconds: float
    after: tuple[int, ...] = ()
    traffic: Hashable = None


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

    def add(self, name: str, stream: tuple[int, str], seconds: float, *after: int, traffic: Hashable = None) -> int:
        """Add a task; return its number, for those that wait for it."""
        self.tasks.append(Task(name, stream, seconds, after, traffic))
        return len(self.tasks) - 1

    def intervals(self) -> list[Interval]:
        """Return when each task begins and ends. Raise ValueError where tasks wait for each other in a circle."""
        return run_tasks(self.tasks)


class _Order:
    """Which tasks wait for which, and for how many more."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self.followers: dict[int, list[int]] = defaultdict(list)
        self.missing = [0] * len(tasks)
        last: dict[tuple[int, str], int] = {}
        for number, task in enumerate(tasks):
            before = {*task.after} | ({last[task.stream]} if task.stream in last else set())
            last[task.stream] = number
            self.missing[number] = len(before)
            for each in before:
                self.followers[each].append(number)

    def first(self) -> list[int]:
        """Return the tasks that wait for none."""
        return [number for number, count in enumerate(self.missing) if not count]

    def finish(self, number: int) -> list[int]:
        """Return the tasks that now wait for none, as this one is done."""
        for each in self.followers[number]:
            self.missing[each] -= 1
        return [each for each in self.followers[number] if not self.missing[each]]


def run_tasks(tasks: Sequence[Task]) -> list[Interval]:
    """Return when each task begins and ends: once its stream is free and all that it waits for is done."""
    order = _Order(tasks)
    begins, found = [0.0] * len(tasks), [Interval(0.0, 0.0)] * len(tasks)
    ready, done = deque(order.first()), 0
    while ready:
        number = ready.popleft()
        found[number] = Interval(begins[number], begins[number] + tasks[number].seconds)
        done += 1
        for each in order.followers[number]:
            begins[each] = max(begins[each], found[number].end)
        ready.extend(order.finish(number))
    if done < len(tasks):
        raise ValueError(f"{len(tasks) - done} tasks wait for each other")
    return found


class Shared(NamedTuple):
    """When tasks begin and end that share links, and how long which traffic went on at once."""

    intervals: list[Interval]
    together: dict[frozenset[Hashable], float]  # seconds


def run_sharing(tasks: Sequence[Task], paces: Paces) -> Shared:
    """Return when each task begins and ends where traffic that goes on at once is as fast as ``paces`` says.

    >>> tasks = [Task("load", (0, "load"), 1.0, (), "a"), Task("send", (0, "comm"), 2.0, (), "b")]
    >>> run_sharing(tasks, lambda traffic: dict.fromkeys(traffic, 1 / len(traffic))).intervals
    [Interval(begin=0.0, end=2.0), Interval(begin=0.0, end=3.0)]
    """
    order, now, together = _Order(tasks), 0.0, dict[frozenset[Hashable], float]()
    begins, found = [0.0] * len(tasks), [Interval(0.0, 0.0)] * len(tasks)
    left = {number: tasks[number].seconds for number in order.first()}
    while left:
        going = frozenset(tasks[number].traffic for number in left if tasks[number].traffic is not None)
        speed = paces(going) if len(going) > 1 else {}
        pace = {number: speed.get(tasks[number].traffic, 1.0) for number in left}
        step = min(left[number] / pace[number] for number in left)
        now += step
        if len(going) > 1:
            together[going] = together.get(going, 0.0) + step
        for number in left:
            left[number] -= step * pace[number]
        for number in [one for one in left if left[one] <= DONE * tasks[one].seconds]:
            del left[number]
            found[number] = Interval(begins[number], now)
            for each in order.finish(number):
                begins[each] = now
                left[each] = tasks[each].seconds
    return Shared(found, together)


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
    does anything. What travels takes cores and memory from backward: while they overlap, a second of it costs backward
    ``steal`` seconds. Up to a steal of 1 backward goes on at the rest of its speed; above, it stands still and the
    bucket takes longer.

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
