"""One rank's part of a measurement: check the result once, run on real data if there is any, then time repetitions."""

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median_low
from time import perf_counter

import numpy as np
import numpy.typing as npt
import torch

from realcomm.execution.events import Event
from realcomm.execution.own_collective import OwnCollective, Runner, make_runner
from realcomm.launching.group import own_device
from realcomm.launching.status import report_progress, set_status
from realcomm.measuring.collective_run import FOUND, RankFigures, RankMeasurement, TimedRequest
from realcomm.measuring.timing import (
    Interval,
    exact_input,
    exact_result,
    first_to_last,
    gather_intervals,
    max_over_ranks,
    median_index,
    neutral_buffer,
    repetitions_within,
    sum_over_ranks,
    time_together,
    without_garbage_collection,
)

TOTAL_S = 1.0  # of all repetitions, unless their number is given ...
LEAST, MOST = 5, 49  # ... which is within these
REPORT_EVERY_S = 0.25


class RunningMeasurement:
    """A measurement on one rank, carried out block by block."""

    def __init__(self, rank: int, world_size: int, measurement: TimedRequest) -> None:
        """Check the result, carry data if there is any, and warm up; all ranks call this with the same measurement."""
        request, name = measurement.request, measurement.request.algorithm.full_name
        self._executor = make_runner(request, rank, world_size, own_device())
        set_status(f"checking {name}")
        begin = perf_counter()
        self._wrong = _wrong_elements(self._executor) if measurement.check else 0
        set_status(f"carrying data by {name}")
        inputs = measurement.inputs
        self._data = None if inputs is None else _run_on_file(self._executor, inputs / f"{rank}.npy")
        self._buffer = neutral_buffer(request, own_device())
        with without_garbage_collection():
            set_status(f"warming up {name}")
            self._each = _warm_up(self._executor, self._buffer, measurement.warmup, perf_counter() - begin)
        self._asked = measurement.repetitions
        self._intervals: list[Interval] = []
        self._records: list[list[Event]] = []

    def take_block(self, total_s: float = TOTAL_S, least: int = LEAST, most: int = MOST) -> None:
        """Repeat as often as was asked for, or for about so many seconds; all ranks call this."""
        repetitions = self._asked or repetitions_within(total_s, self._each, least, most)
        set_status(f"timing {self._executor.request.algorithm.full_name}")
        with without_garbage_collection():
            intervals, records = _repeat(self._executor, self._buffer, repetitions)
        self._intervals += intervals
        self._records += records

    def result(self) -> RankMeasurement:
        """Return the result of all blocks; all ranks call this."""
        whole = first_to_last(gather_intervals(self._intervals))
        seconds, middle = [end - begin for begin, end in whole], median_index(whole)
        begin, record = whole[middle][0], self._records[middle]
        if self._buffer.is_cuda:  # there recording puts work on the stream, so it has a repetition of its own
            begin, record = _record(self._executor, self._buffer)
        return RankMeasurement(seconds, begin, record, self._wrong, self._data)


def measure_rank(rank: int, world_size: int, measurement: TimedRequest) -> RankMeasurement:
    """Return the result of a measurement on this rank; all ranks call this with the same measurement."""
    running = RunningMeasurement(rank, world_size, measurement)
    running.take_block(measurement.total_s, measurement.least)
    return running.result()


def figures_of(measured: RankMeasurement) -> RankFigures:
    """Return the figures of a measurement, the same on all ranks; all ranks call this with their own part of it."""
    seconds = measured.seconds
    return RankFigures(median_low(seconds), min(seconds), max(seconds), sum_over_ranks(measured.wrong))


def _wrong_elements(executor: Runner) -> int:
    """Return how many elements of the result on exact inputs differ from the right ones."""
    tensor = exact_input(executor.request, executor.rank).to(own_device())
    executor.run(tensor)
    _settle(executor, tensor)
    expected = exact_result(executor.request, executor.rank, executor.world_size)
    if expected is None:
        return 0
    where, values = expected
    return int(torch.count_nonzero(tensor.cpu()[where] != values))


def _settle(executor: Runner, tensor: torch.Tensor) -> None:
    if isinstance(executor, OwnCollective):
        executor.settle(tensor)


def _run_on_file(executor: Runner, file: Path) -> npt.NDArray[np.generic]:
    """Run the collective on the array of a file; return the result."""
    tensor = torch.from_numpy(np.load(file, allow_pickle=False)).to(own_device())
    executor.run(tensor)
    _settle(executor, tensor)
    result: npt.NDArray[np.generic] = tensor.cpu().numpy()
    return result


def _warm_up(executor: Runner, buffer: torch.Tensor, warmup: int, so_far: float) -> float:
    """Return the seconds of the last warm-up repetition on the slowest rank, or of ``so_far`` without any."""
    last = so_far
    for _ in range(warmup):
        begin, end = time_together(partial(executor.run, buffer))
        last = end - begin
    return max_over_ranks(last)


def _repeat(executor: Runner, buffer: torch.Tensor, repetitions: int) -> tuple[list[Interval], list[list[Event]]]:
    """Return when this rank began and ended every repetition, and its events in each."""
    records: list[list[Event]] = [[] for _ in range(repetitions)]
    intervals, report = [], _rare_report(executor, repetitions)
    for done, record in enumerate(records):
        report(done)
        intervals.append(time_together(partial(executor.run, buffer, None if buffer.is_cuda else record)))
    return intervals, records


def _record(executor: Runner, buffer: torch.Tensor) -> tuple[float, list[Event]]:
    """Run a repetition with a record; return its begin and this rank's events."""
    record: list[Event] = []
    interval = time_together(partial(executor.run, buffer, record))
    ((begin, _),) = first_to_last(gather_intervals([interval]))
    return begin, record


def _rare_report(executor: Runner, repetitions: int) -> Callable[[int], None]:
    """Return a function that reports rank 0's progress, rarely: a report wakes the launcher, which takes a core."""
    last = perf_counter()

    def report(done: int) -> None:
        nonlocal last
        if executor.rank == 0 and perf_counter() - last > REPORT_EVERY_S:
            last = perf_counter()
            report_progress(done, repetitions, executor.request.algorithm.full_name)

    return report


def measure_each(rank: int, world_size: int, measurements: Sequence[TimedRequest]) -> list[RankMeasurement]:
    """Measure one request after the other; rank 0 reports the figures of each when it is done."""
    measured = []
    for number, measurement in enumerate(measurements):
        measured.append(measure_rank(rank, world_size, measurement))
        figures = figures_of(measured[-1])
        if rank == 0:
            report_progress(number, len(measurements), FOUND + json.dumps(figures))
    return measured
