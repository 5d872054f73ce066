"""Tasks on streams: what a device does one after the other, and what waits for what. A step's time is its last end."""

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
        """Return when each task begins and ends. Raise ValueError where tasks wait for each other in a circle."""
        return run_tasks(self.tasks)


def run_tasks(tasks: Sequence[Task]) -> list[Interval]:
    """Return when each task begins and ends: once its stream is free and all that it waits for is done."""
    followers: dict[int, list[int]] = defaultdict(list)
    missing = [0] * len(tasks)
    last: dict[tuple[int, str], int] = {}
    for number, task in enumerate(tasks):
        before = {*task.after} | ({last[task.stream]} if task.stream in last else set())
        last[task.stream] = number
        missing[number] = len(before)
        for each in before:
            followers[each].append(number)
    begins, found = [0.0] * len(tasks), [Interval(0.0, 0.0)] * len(tasks)
    ready, done = deque(number for number, count in enumerate(missing) if not count), 0
    while ready:
        number = ready.popleft()
        found[number] = Interval(begins[number], begins[number] + tasks[number].seconds)
        done += 1
        for each in followers[number]:
            begins[each] = max(begins[each], found[number].end)
            missing[each] -= 1
            if not missing[each]:
                ready.append(each)
    if done < len(tasks):
        raise ValueError(f"{len(tasks) - done} tasks wait for each other")
    return found
