"""What one rank does in a measurement: inputs whose result is exact, and calls that are timed."""

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
from collectives.request import Request, part_slice
from realcomm.execution.executor import COMBINE
from realcomm.launching.group import own_device

LEAD_S = 1e-3  # from agreeing on a start to the start, and so much more for each rank ...
LATEST = 8  # ... or, if that is longer, twice what the slowest of so many agreements took ...
MOST_LEAD_S = 0.1  # ... but no more than this
SPIN_S = 3e-4  # the last part of the wait, spent awake: sleep may end this much late
Interval = tuple[float, float]  # begin and end, as time.perf_counter has it
_took: deque[float] = deque(maxlen=LATEST)  # seconds from when the last rank asked until this one had the answer
PERIOD = 1009  # a prime, so that chunks of equal length hold different data


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


def exact_input(request: Request, rank: int) -> torch.Tensor:
    """Return elements that differ along the buffer and from rank to rank: -1, 0 or 1; for products few above 1.

    >>> from collectives import find_algorithm
    >>> exact_input(Request(find_algorithm("all_reduce/ring"), elements=4), rank=0)
    tensor([-1.,  1.,  0., -1.])
    """
    pattern, n = (torch.arange(PERIOD) * (rank + 2) + rank) % 3 - 1, request.elements
    if request.op == "product":
        pattern = pattern + 2 if rank < 4 else 1 - 2 * pattern.abs()
    return pattern.to(getattr(torch, request.dtype)).repeat(-(-n // PERIOD))[:n].clone()


def exact_result(request: Request, rank: int, world_size: int) -> tuple[slice, torch.Tensor] | None:
    """Return the defined elements of ``rank`` after the collective on every rank's ``exact_input``: where, and which.

    Return None if there is nothing to compare: nothing is defined, or contributions may count repeatedly, as in a
    barrier.
    """
    spec, n, op, root = request.spec, request.elements, request.op, request.root
    parts = spec.result(rank, world_size, root)
    if not parts or spec.repeats:
        return None
    contributors = {part: spec.end(rank, part, world_size, root) or frozenset() for part in parts}
    result, filled = torch.empty(n, dtype=getattr(torch, request.dtype)), set[int]()
    for contributor in sorted(frozenset().union(*contributors.values())):
        data = exact_input(request, contributor)
        for part in (part for part in parts if contributor in contributors[part]):
            target, incoming = (
                result[part_slice(part, n, world_size)],
                data[part_slice(spec.origin(rank, part), n, world_size)],
            )
            (COMBINE[op] if part in filled else torch.Tensor.copy_)(target, incoming)
            filled.add(part)
    where = part_slice(parts, n, world_size)
    return where, result[where] / world_size if op == "mean" and spec.reduces else result[where]


def neutral_buffer(request: Request, device: torch.device) -> torch.Tensor:
    """Return a buffer that stays the same when it is reduced with its like, so that it can be used repeatedly.

    >>> from collectives import find_algorithm
    >>> neutral_buffer(Request(find_algorithm("all_reduce/ring"), elements=2, op="product"), torch.device("cpu"))
    tensor([1., 1.])
    """
    value, dtype = 1 if request.op == "product" else 0, getattr(torch, request.dtype)
    return torch.full((request.elements,), value, dtype=dtype, device=device)
