"""How ranks begin together, so that a time from first start to last end means something. All on one host's clock."""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median_low
from time import perf_counter

import torch
import torch.distributed as dist

from collectives.records.environment import cores
from realcomm.launching.group import own_device

LEAD = 1e-3  # seconds from agreeing on a start to the start, and so much more for each rank
SPIN = 3e-4  # the last part of the wait is spent awake: sleep may end this much late
Interval = tuple[float, float]  # begin and end, as time.perf_counter has it


def together(action: Callable[[], object]) -> Interval:
    """When this rank began and ended ``action``, which every rank of the group begins at one agreed instant."""
    _sleep_until(_agree_on_start())
    begin = perf_counter()
    action()
    finish()
    return begin, perf_counter()


def finish() -> None:
    """What was asked of this rank's GPU is done."""
    if own_device().type == "cuda":
        torch.cuda.synchronize()


def _agree_on_start() -> float:
    """An instant that all ranks know in time: every rank has arrived, and the last at most ``LEAD`` before it."""
    now = torch.tensor([perf_counter()], dtype=torch.float64, device=own_device())
    dist.all_reduce(now, dist.ReduceOp.MAX)
    return now.item() + LEAD * (1 + dist.get_world_size())


def _sleep_until(instant: float) -> None:
    spin = SPIN if dist.get_world_size() <= cores() else 0.0  # more ranks than cores would only take turns at it
    time.sleep(max(0.0, instant - spin - perf_counter()))
    while perf_counter() < instant:
        pass


def all_intervals(own: list[Interval]) -> list[list[Interval]]:
    """The intervals of every rank, by rank, each as many as this rank has."""
    mine = torch.tensor(own, dtype=torch.float64, device=own_device())
    everyones = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(everyones, mine)
    return [[(begin, end) for begin, end in theirs.tolist()] for theirs in everyones]


def first_to_last(intervals: list[list[Interval]]) -> list[Interval]:
    """For each repetition, the first rank's begin and the last rank's end."""
    return [(min(begin for begin, _ in same), max(end for _, end in same)) for same in zip(*intervals, strict=True)]


def median_index(spans: list[Interval]) -> int:
    """Which repetition took the median time; of an even number, the shorter of the two in the middle."""
    seconds = [end - begin for begin, end in spans]
    return seconds.index(median_low(seconds))


def slowest(seconds: float) -> float:
    """The most that any rank says, known to all."""
    most = torch.tensor([seconds], dtype=torch.float64, device=own_device())
    dist.all_reduce(most, dist.ReduceOp.MAX)
    return most.item()


def total(number: int) -> int:
    """The sum over all ranks, known to all."""
    everyones = torch.tensor([number], device=own_device())
    dist.all_reduce(everyones)
    return int(everyones.item())


def enough(seconds: float, total: float, least: int, most: int) -> int:
    """How many repetitions of so many seconds fill ``total`` seconds, within bounds; odd, so that one is the median."""
    wanted = min(max(total / max(seconds, 1e-9), least), most)
    return int(wanted) | 1


@contextmanager
def undisturbed() -> Iterator[None]:
    """Inside, Python does not stop to collect garbage."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
