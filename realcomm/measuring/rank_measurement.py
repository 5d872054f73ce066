"""One rank's part of a measurement: check the result once, run on real data if there is any, then time repetitions."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median_low
from time import perf_counter

import numpy as np
import numpy.typing as npt
import torch

from realcomm.execution.events import Event
from realcomm.execution.executor import Executor
from realcomm.launching.group import own_device
from realcomm.launching.status import report_progress, set_status
from realcomm.measuring.exact_inputs import exact_input, exact_result, neutral_buffer
from realcomm.measuring.measurement import Figures, Measurement, RankMeasurement
from realcomm.measuring.timing import (
    first_to_last,
    gather_intervals,
    max_over_ranks,
    median_index,
    repetitions_within,
    sum_over_ranks,
    time_together,
    without_garbage_collection,
)

TOTAL_S = 1.0  # of all repetitions, unless their number is given ...
LEAST, MOST = 5, 49  # ... which is within these
REPORT_EVERY_S = 0.25


def measure_rank(rank: int, world_size: int, measurement: Measurement) -> RankMeasurement:
    """Return the result of a measurement on this rank; all ranks call this with the same measurement."""
    request, name = measurement.request, measurement.request.algorithm.full_name
    executor = Executor(request, rank, world_size, device=own_device())
    set_status(f"checking {name}")
    begin = perf_counter()
    wrong = _wrong_elements(executor) if measurement.check else 0
    set_status(f"carrying data by {name}")
    data = None if measurement.inputs is None else _run_on_file(executor, measurement.inputs / f"{rank}.npy")
    buffer = neutral_buffer(request, own_device())
    with without_garbage_collection():
        set_status(f"warming up {name}")
        each = _warm_up(executor, buffer, measurement.warmup, perf_counter() - begin)
        repetitions = measurement.repetitions or repetitions_within(TOTAL_S, each, LEAST, MOST)
        set_status(f"timing {name}")
        seconds, start, events = _repeat(executor, buffer, repetitions)
    return RankMeasurement(seconds, start, events, wrong, data)


def measure_figures(rank: int, world_size: int, measurement: Measurement) -> Figures:
    """Return the figures of a measurement, the same on all ranks; all ranks call this."""
    measured = measure_rank(rank, world_size, measurement)
    seconds = measured.seconds
    return Figures(median_low(seconds), min(seconds), max(seconds), sum_over_ranks(measured.wrong))


def _wrong_elements(executor: Executor) -> int:
    """Return how many elements of the result on exact inputs differ from the right ones."""
    tensor = exact_input(executor.request, executor.rank).to(own_device())
    executor.run(tensor)
    expected = exact_result(executor.request, executor.rank, executor.world_size)
    if expected is None:
        return 0
    where, values = expected
    return int(torch.count_nonzero(tensor.cpu()[where] != values))


def _run_on_file(executor: Executor, file: Path) -> npt.NDArray[np.generic]:
    """Run the collective on the array of a file; return the result."""
    tensor = torch.from_numpy(np.load(file, allow_pickle=False)).to(own_device())
    executor.run(tensor)
    result: npt.NDArray[np.generic] = tensor.cpu().numpy()
    return result


def _warm_up(executor: Executor, buffer: torch.Tensor, warmup: int, so_far: float) -> float:
    """Return the seconds of the last warm-up repetition on the slowest rank, or of ``so_far`` without any."""
    last = so_far
    for _ in range(warmup):
        begin, end = time_together(partial(executor.run, buffer))
        last = end - begin
    return max_over_ranks(last)


def _repeat(executor: Executor, buffer: torch.Tensor, repetitions: int) -> tuple[list[float], float, list[Event]]:
    """Return the seconds of every repetition, the begin of the median one, and this rank's events in that."""
    records: list[list[Event]] = [[] for _ in range(repetitions)]
    intervals, report = [], _rare_report(executor, repetitions)
    for done, record in enumerate(records):
        report(done)
        intervals.append(time_together(partial(executor.run, buffer, None if buffer.is_cuda else record)))
    whole = first_to_last(gather_intervals(intervals))
    begins, seconds, middle = [begin for begin, _ in whole], [end - begin for begin, end in whole], median_index(whole)
    if buffer.is_cuda:  # there recording waits for the GPU in every step, so it has a repetition of its own
        begins[middle], records[middle] = _record(executor, buffer)
    return seconds, begins[middle], records[middle]


def _record(executor: Executor, buffer: torch.Tensor) -> tuple[float, list[Event]]:
    """Run a repetition with a record; return its begin and this rank's events."""
    record: list[Event] = []
    interval = time_together(partial(executor.run, buffer, record))
    ((begin, _),) = first_to_last(gather_intervals([interval]))
    return begin, record


def _rare_report(executor: Executor, repetitions: int) -> Callable[[int], None]:
    """Return a function that reports rank 0's progress, rarely: a report wakes the launcher, which takes a core."""
    last = perf_counter()

    def report(done: int) -> None:
        nonlocal last
        if executor.rank == 0 and perf_counter() - last > REPORT_EVERY_S:
            last = perf_counter()
            report_progress(done, repetitions, executor.request.algorithm.full_name)

    return report
