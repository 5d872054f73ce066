"""Measure a collective on one rank: check its result, run it on real data if given, then time repetitions."""

import gc
import json
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median_low
from time import perf_counter

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist

from collectives.call import CollectiveCall, part_slice
from collectives.records.environment import cores
from realcomm.execution.device_clock import seconds_of
from realcomm.execution.events import Event
from realcomm.execution.executor import COMBINE
from realcomm.execution.own_collective import Runner, make_runner
from realcomm.execution.shared_clock import clock_offset, gather_over_ranks, max_over_ranks
from realcomm.launching.group import own_device
from realcomm.launching.status import report_progress, set_status
from realcomm.measuring.collective_run import FIGURES, RankFigures, RankMeasurement, TimedCall

LEAD_S = 1e-3  # from the agreement to the start, plus as much for each rank
LATEST = 8  # agreements; twice the slowest of them is the lead if it is longer
MOST_LEAD_S = 0.1  # upper limit of such a lead
SPIN_S = 3e-4  # the last part of a wait is a spin loop, because sleep may end this late
Interval = tuple[float, float]  # begin and end on the shared clock
_agreements: deque[float] = deque(maxlen=LATEST)  # seconds from the last rank's call to this rank's result
PERIOD = 1009  # a prime, so that chunks of equal length hold different data


def time_together(action: Callable[[], object]) -> Interval:
    """Call ``action`` on all ranks at one agreed instant; return its start and end on this rank.

    The times are in seconds of the shared clock.
    """
    start, offset = _agree_on_start(), clock_offset().seconds
    _sleep_until(start - offset)
    begin = perf_counter()
    action()
    if own_device().type == "cuda":
        torch.cuda.synchronize()
    return begin + offset, perf_counter() + offset


def _agree_on_start() -> float:
    """Return a start time on which all ranks agree, in seconds of the shared clock."""
    offset = clock_offset()
    now, is_stale = perf_counter() + offset.seconds, float(offset.is_stale())
    values = torch.tensor([now, max(_agreements, default=0.0), is_stale], dtype=torch.float64, device=own_device())
    dist.all_reduce(values, dist.ReduceOp.MAX)
    last, agreement_s, any_stale = values.tolist()
    if any_stale:
        offset.measure()
        return _agree_on_start()
    _agreements.append(perf_counter() + offset.seconds - last)
    return float(last + start_after(agreement_s, dist.get_world_size()))


def start_after(agreement_s: float, world_size: int) -> float:
    """Return the delay in seconds before a common start. ``agreement_s`` is the longest recent agreement, in seconds.

    >>> start_after(0.0001, world_size=2), start_after(0.02, world_size=8)
    (0.003, 0.04)
    """
    return max(LEAD_S * (1 + world_size), min(2 * agreement_s, MOST_LEAD_S))


def _sleep_until(instant: float) -> None:
    # otherwise spinning ranks would keep other ranks from running
    spin = SPIN_S if dist.get_world_size() <= cores() else 0.0
    time.sleep(max(0.0, instant - spin - perf_counter()))
    while perf_counter() < instant:
        pass


def gather_intervals(intervals: list[Interval]) -> list[list[Interval]]:
    """Return the intervals of all ranks, by rank. Every rank must have the same number of intervals."""
    by_rank = gather_over_ranks(torch.tensor(intervals, dtype=torch.float64)).tolist()
    return [[(begin, end) for begin, end in intervals_of_rank] for intervals_of_rank in by_rank]


def first_to_last(intervals: list[list[Interval]]) -> list[Interval]:
    """Return the first rank's start and the last rank's end of each repetition.

    >>> first_to_last([[(0.0, 2.0)], [(1.0, 3.0)]])
    [(0.0, 3.0)]
    """
    return [(min(begin for begin, _ in same), max(end for _, end in same)) for same in zip(*intervals, strict=True)]


def median_index(intervals: list[Interval]) -> int:
    """Return the index of the interval of median length. If their number is even, use the lower median.

    >>> median_index([(0.0, 3.0), (0.0, 1.0), (0.0, 2.0)])
    2
    """
    seconds = [end - begin for begin, end in intervals]
    return seconds.index(median_low(seconds))


def sum_over_ranks(number: int) -> int:
    everyones = torch.tensor([number], device=own_device())
    dist.all_reduce(everyones)
    return int(everyones.item())


def repetitions_within(total: float, seconds: float, least: int, most: int) -> int:
    """Return how many repetitions of ``seconds`` each fill ``total`` seconds.

    The number is at least ``least`` and at most ``most``. It is odd, so that one repetition is the median.

    >>> [repetitions_within(1.0, seconds, least=5, most=49) for seconds in (0.0, 0.1, 10.0)]
    [49, 11, 5]
    """
    count = min(max(total / max(seconds, 1e-9), least), most)
    return int(count) | 1


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Disable Python's garbage collector, which would disturb a measurement, within the context."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def exact_input(call: CollectiveCall, rank: int) -> torch.Tensor:
    """Return a rank's input for checking results: integers from -1 to 1 that vary by position and rank.

    For products, they are from 1 to 3 on ranks 0 to 3, and -1 or 1 on all other ranks.

    >>> from collectives import find_algorithm
    >>> exact_input(CollectiveCall(find_algorithm("all_reduce/ring"), elements=4), rank=0)
    tensor([-1.,  1.,  0., -1.])
    """
    pattern, n = (torch.arange(PERIOD) * (rank + 2) + rank) % 3 - 1, call.elements
    if call.op == "product":
        pattern = pattern + 2 if rank < 4 else 1 - 2 * pattern.abs()
    return pattern.to(getattr(torch, call.dtype)).repeat(-(-n // PERIOD))[:n].clone()


def exact_result(call: CollectiveCall, rank: int, world_size: int) -> tuple[slice, torch.Tensor] | None:
    """Return the slice of ``rank``'s buffer that the collective defines, and the expected result in this slice.

    The input of each rank must be ``exact_input``. Return None if no element is defined, or if a contribution may be
    counted more than once, as in a barrier.
    """
    spec, n, op, root = call.spec, call.elements, call.op, call.root
    parts = spec.result(rank, world_size, root)
    if not parts or spec.repeats:
        return None
    contributors = {part: spec.end(rank, part, world_size, root) or frozenset() for part in parts}
    result, filled = torch.empty(n, dtype=getattr(torch, call.dtype)), set[int]()
    for contributor in sorted(frozenset().union(*contributors.values())):
        data = exact_input(call, contributor)
        for part in (part for part in parts if contributor in contributors[part]):
            target, incoming = (
                result[part_slice(part, n, world_size)],
                data[part_slice(spec.origin(rank, part), n, world_size)],
            )
            (COMBINE[op] if part in filled else torch.Tensor.copy_)(target, incoming)
            filled.add(part)
    where = part_slice(parts, n, world_size)
    return where, result[where] / world_size if op == "mean" and spec.reduces else result[where]


def neutral_buffer(call: CollectiveCall, device: torch.device) -> torch.Tensor:
    """Return a buffer of zeros, or of ones for products, which does not change when it is reduced with itself.

    >>> from collectives import find_algorithm
    >>> neutral_buffer(CollectiveCall(find_algorithm("all_reduce/ring"), elements=2, op="product"), torch.device("cpu"))
    tensor([1., 1.])
    """
    value, dtype = 1 if call.op == "product" else 0, getattr(torch, call.dtype)
    return torch.full((call.elements,), value, dtype=dtype, device=device)


TOTAL_S = 1.0  # of all repetitions, unless their number is set
LEAST, MOST = 5, 49  # bounds of that number
REPORT_EVERY_S = 0.25
QUEUED = 20  # queued runs on GPUs that are timed together, as in nccl-tests


class RunningMeasurement:
    """A measurement on one rank, whose repetitions can be split into several blocks."""

    def __init__(self, rank: int, world_size: int, measurement: TimedCall) -> None:
        """Check the result, run on the measurement's ``inputs`` if set, and warm up. All ranks must call this."""
        call, name = measurement.call, measurement.call.algorithm.full_name
        self._executor = make_runner(call, rank, world_size, own_device())
        set_status(f"checking {name}")
        begin = perf_counter()
        self._wrong = _wrong_elements(self._executor) if measurement.check else 0
        set_status(f"running {name} on real data")
        inputs = measurement.inputs
        self._data = None if inputs is None else _run_on_file(self._executor, inputs / f"{rank}.npy")
        self._buffer = neutral_buffer(call, own_device())
        with without_garbage_collection():
            set_status(f"warming up {name}")
            self._each = _warm_up(self._executor, self._buffer, measurement.warmup, perf_counter() - begin)
        self._count = measurement.repetitions
        self._intervals: list[Interval] = []
        self._records: list[list[Event]] = []

    def take_block(self, total_s: float = TOTAL_S, least: int = LEAST, most: int = MOST) -> None:
        """Time the measurement's repetitions. All ranks must call this.

        If their number is not set, fill about ``total_s`` seconds with ``least`` to ``most`` repetitions.
        """
        repetitions = self._count or repetitions_within(total_s, self._each, least, most)
        set_status(f"timing {self._executor.call.algorithm.full_name}")
        with without_garbage_collection():
            intervals, records = _repeat(self._executor, self._buffer, repetitions)
        self._intervals += intervals
        self._records += records

    def result(self) -> RankMeasurement:
        spans = first_to_last(gather_intervals(self._intervals))
        seconds, middle = [end - begin for begin, end in spans], median_index(spans)
        begin, record, queued = spans[middle][0], self._records[middle], None
        if self._buffer.is_cuda:  # recording adds work to the stream, so it gets a separate repetition
            begin, record = _record(self._executor, self._buffer)
            queued = _time_queued(self._executor, self._buffer)
        return RankMeasurement(seconds, begin, record, self._wrong, self._data, queued)


def measure_rank(rank: int, world_size: int, measurement: TimedCall) -> RankMeasurement:
    """Measure one collective call on this rank; all ranks must call this with the same ``measurement``."""
    running = RunningMeasurement(rank, world_size, measurement)
    running.take_block(measurement.total_s, measurement.least)
    return running.result()


def figures_of(measured: RankMeasurement) -> RankFigures:
    """Return a measurement's statistics over all ranks. They are equal on all ranks. All ranks must call this."""
    seconds = measured.seconds
    return RankFigures(
        median_low(seconds), min(seconds), max(seconds), sum_over_ranks(measured.wrong), measured.queued_s
    )


def _wrong_elements(executor: Runner) -> int:
    tensor = exact_input(executor.call, executor.rank).to(own_device())
    executor.run(tensor)
    executor.settle(tensor)
    expected = exact_result(executor.call, executor.rank, executor.world_size)
    if expected is None:
        return 0
    where, values = expected
    return int(torch.count_nonzero(tensor.cpu()[where] != values))


def _run_on_file(executor: Runner, file: Path) -> npt.NDArray[np.generic]:
    tensor = torch.from_numpy(np.load(file, allow_pickle=False)).to(own_device())
    executor.run(tensor)
    executor.settle(tensor)
    result: npt.NDArray[np.generic] = tensor.cpu().numpy()
    return result


def _warm_up(executor: Runner, buffer: torch.Tensor, warmup: int, default: float) -> float:
    """Warm up. Return the seconds of the last repetition on the slowest rank, or ``default`` if ``warmup`` is 0."""
    last = default
    for _ in range(warmup):
        begin, end = time_together(partial(executor.run, buffer))
        last = end - begin
    return max_over_ranks(last)


def _repeat(executor: Runner, buffer: torch.Tensor, repetitions: int) -> tuple[list[Interval], list[list[Event]]]:
    records: list[list[Event]] = [[] for _ in range(repetitions)]
    intervals, report = [], _rare_report(executor, repetitions)
    for done, record in enumerate(records):
        report(done)
        intervals.append(time_together(partial(executor.run, buffer, None if buffer.is_cuda else record)))
        record[:] = _by_shared_clock(record)
    return intervals, records


def _by_shared_clock(record: list[Event]) -> list[Event]:
    offset = clock_offset().seconds
    return [each._replace(begin=each.begin + offset, end=each.end + offset) for each in record] if offset else record


def _record(executor: Runner, buffer: torch.Tensor) -> tuple[float, list[Event]]:
    record: list[Event] = []
    interval = time_together(partial(executor.run, buffer, record))
    ((begin, _),) = first_to_last(gather_intervals([interval]))
    return begin, _by_shared_clock(record)


def _time_queued(executor: Runner, buffer: torch.Tensor) -> float:
    """Return the mean seconds of ``QUEUED`` consecutive runs on the rank whose GPU is slowest."""

    def run() -> None:
        for _ in range(QUEUED):
            executor.run(buffer)

    run()  # warms up
    return max_over_ranks(seconds_of(run, buffer.device) / QUEUED)


def _rare_report(executor: Runner, repetitions: int) -> Callable[[int], None]:
    """Return a function that reports rank 0's progress, at most once every ``REPORT_EVERY_S`` seconds."""
    last = perf_counter()

    def report(done: int) -> None:
        nonlocal last
        if executor.rank == 0 and perf_counter() - last > REPORT_EVERY_S:
            last = perf_counter()
            report_progress(done, repetitions, executor.call.algorithm.full_name)

    return report


def measure_each(rank: int, world_size: int, measurements: Sequence[TimedCall]) -> list[RankMeasurement]:
    """Measure one collective call after another. Rank 0 reports each call's statistics to the launcher."""
    measured = []
    for number, measurement in enumerate(measurements):
        measured.append(measure_rank(rank, world_size, measurement))
        figures = figures_of(measured[-1])
        if rank == 0:
            report_progress(number, len(measurements), FIGURES + json.dumps(figures))
    return measured
