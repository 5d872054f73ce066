"""Time an action on all ranks of one host from a common start, by the clock that they share.

All ranks of the default group call each function that communicates.
"""

import gc
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median_low
from time import perf_counter

import torch
import torch.distributed as dist

from collectives.records.environment import cores
from realcomm.launching.group import own_device

LEAD_S = 1e-3  # from agreeing on a start to the start, and so much more for each rank ...
LATEST = 8  # ... or, if that is longer, twice what the slowest of so many agreements took ...
MOST_LEAD_S = 0.1  # ... but no more than this
SPIN_S = 3e-4  # the last part of the wait, spent awake: sleep may end this much late
Interval = tuple[float, float]  # begin and end, as time.perf_counter has it


def time_together(action: Callable[[], object]) -> Interval:
    """Call ``action`` on all ranks from one agreed instant; return when this rank began and ended."""
    _sleep_until(_agree_on_start())
    begin = perf_counter()
    action()
    _synchronize_gpu()
    return begin, perf_counter()


def _synchronize_gpu() -> None:
    if own_device().type == "cuda":
        torch.cuda.synchronize()


_took: deque[float] = deque(maxlen=LATEST)  # seconds from when the last rank asked until this one had the answer


def _agree_on_start() -> float:
    """Return an instant in the future, the same for all ranks, that all of them know in time.

    Eight ranks on slow links agree later than the first of them would have begun; so they learn what it takes.
    """
    asked = torch.tensor([perf_counter(), max(_took, default=0.0)], dtype=torch.float64, device=own_device())
    dist.all_reduce(asked, dist.ReduceOp.MAX)
    last, took = map(float, asked.tolist())
    _took.append(perf_counter() - last)
    return last + start_after(took, dist.get_world_size())


def start_after(took: float, world_size: int) -> float:
    """Return how long after the last rank has asked all begin, where earlier agreements ``took`` so many seconds.

    >>> start_after(0.0001, world_size=2), start_after(0.02, world_size=8)
    (0.003, 0.04)
    """
    return max(LEAD_S * (1 + world_size), min(2 * took, MOST_LEAD_S))


def _sleep_until(instant: float) -> None:
    spin = SPIN_S if dist.get_world_size() <= cores() else 0.0  # more ranks than cores would keep each other from it
    time.sleep(max(0.0, instant - spin - perf_counter()))
    while perf_counter() < instant:
        pass


def gather_intervals(own: list[Interval]) -> list[list[Interval]]:
    """Return the intervals of every rank, by rank; each has as many as this one."""
    mine = torch.tensor(own, dtype=torch.float64, device=own_device())
    everyones = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(everyones, mine)
    return [[(begin, end) for begin, end in theirs.tolist()] for theirs in everyones]


def first_to_last(intervals: list[list[Interval]]) -> list[Interval]:
    """Return for each repetition the first rank's begin and the last rank's end.

    >>> first_to_last([[(0.0, 2.0)], [(1.0, 3.0)]])
    [(0.0, 3.0)]
    """
    return [(min(begin for begin, _ in same), max(end for _, end in same)) for same in zip(*intervals, strict=True)]


def median_index(intervals: list[Interval]) -> int:
    """Return which interval has the median length; of an even number, the shorter of the two in the middle.

    >>> median_index([(0.0, 3.0), (0.0, 1.0), (0.0, 2.0)])
    2
    """
    seconds = [end - begin for begin, end in intervals]
    return seconds.index(median_low(seconds))


def max_over_ranks(seconds: float) -> float:
    """Return the largest of all ranks' values, on every rank."""
    most = torch.tensor([seconds], dtype=torch.float64, device=own_device())
    dist.all_reduce(most, dist.ReduceOp.MAX)
    return most.item()


def sum_over_ranks(number: int) -> int:
    """Return the sum of all ranks' numbers, on every rank."""
    everyones = torch.tensor([number], device=own_device())
    dist.all_reduce(everyones)
    return int(everyones.item())


def repetitions_within(total: float, seconds: float, least: int, most: int) -> int:
    """Return how many repetitions of ``seconds`` fill ``total`` seconds, within bounds; odd, so that one is the median.

    >>> repetitions_within(1.0, seconds=0.1, least=5, most=49)
    11
    """
    wanted = min(max(total / max(seconds, 1e-9), least), most)
    return int(wanted) | 1


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Within the context, keep Python from collecting garbage, which would disturb a measurement."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
