"""One collective measured by one rank among its peers: checked once, carried out on real data, then timed."""

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
from realcomm.measuring.common_start import (
    all_intervals,
    enough,
    first_to_last,
    median_index,
    slowest,
    together,
    total,
    undisturbed,
)
from realcomm.measuring.exact_inputs import exact_input, exact_result, neutral
from realcomm.measuring.measurement import Figures, Measurement, RankMeasurement

ENOUGH = 1.0  # seconds of repetitions, unless their number is given ...
LEAST, MOST = 5, 49  # ... and their number within these
REPORT_EVERY = 0.25  # seconds


def measure(rank: int, world_size: int, measurement: Measurement) -> RankMeasurement:
    """What this rank finds; all ranks call it with the same measurement."""
    dtype, device = getattr(torch, measurement.request.dtype), own_device()
    executor = Executor(measurement.request, rank, world_size, device=device)
    set_status(f"checking {measurement.request.algorithm.full_name}")
    begin = perf_counter()
    wrong = _wrong_elements(executor, rank, world_size, measurement) if measurement.check else 0
    set_status(f"carrying data by {measurement.request.algorithm.full_name}")
    data = None if measurement.inputs is None else _carried(executor, measurement.inputs / f"{rank}.npy")
    buffer = neutral(measurement.request.elements, dtype, measurement.request.op, device)
    with undisturbed():
        each = _warm_up(executor, buffer, measurement, perf_counter() - begin)
        repetitions = measurement.repetitions or enough(each, ENOUGH, LEAST, MOST)
        seconds, start, events = _repeat(executor, buffer, measurement, repetitions)
    return RankMeasurement(seconds, start, events, wrong, data)


def figures(rank: int, world_size: int, measurement: Measurement) -> Figures:
    """The same in short, and alike on all ranks."""
    measured = measure(rank, world_size, measurement)
    seconds = measured.seconds
    return Figures(median_low(seconds), min(seconds), max(seconds), total(measured.wrong))


def _wrong_elements(executor: Executor, rank: int, world_size: int, measurement: Measurement) -> int:
    """How many elements of the result on exact inputs are not equal to what they must be."""
    tensor = exact_input(rank, measurement.request.elements, executor.dtype, measurement.request.op).to(own_device())
    executor.run(tensor)
    kind = measurement.request.elements, executor.dtype, measurement.request.op, measurement.request.root
    expected = exact_result(measurement.request.algorithm, rank, world_size, *kind)
    if expected is None:
        return 0
    where, values = expected
    return int(torch.count_nonzero(tensor.cpu()[where] != values))


def _carried(executor: Executor, file: Path) -> npt.NDArray[np.generic]:
    tensor = torch.from_numpy(np.load(file, allow_pickle=False)).to(own_device())
    executor.run(tensor)
    result: npt.NDArray[np.generic] = tensor.cpu().numpy()
    return result


def _warm_up(executor: Executor, buffer: torch.Tensor, measurement: Measurement, so_far: float) -> float:
    """Seconds of the last repetition before those that count, agreed by all ranks."""
    set_status(f"warming up {measurement.request.algorithm.full_name}")
    last = so_far
    for _ in range(measurement.warmup):
        begin, end = together(partial(executor.run, buffer))
        last = end - begin
    return slowest(last)


def _repeat(
    executor: Executor, buffer: torch.Tensor, measurement: Measurement, repetitions: int
) -> tuple[list[float], float, list[Event]]:
    """Seconds of every repetition; begin of the one that took the median time, and this rank's events in it."""
    set_status(f"timing {measurement.request.algorithm.full_name}")
    records: list[list[Event]] = [[] for _ in range(repetitions)]
    intervals, tell = [], _sparing_report(executor.rank, repetitions, measurement.request.algorithm.full_name)
    for done, record in enumerate(records):
        tell(done)
        intervals.append(together(partial(executor.run, buffer, None if buffer.is_cuda else record)))
    whole = first_to_last(all_intervals(intervals))
    begins, seconds, middle = [begin for begin, _ in whole], [end - begin for begin, end in whole], median_index(whole)
    if buffer.is_cuda:  # recording waits for the GPU in every step there, so it has a repetition of its own
        begins[middle], records[middle] = _recorded(executor, buffer)
    return seconds, begins[middle], records[middle]


def _recorded(executor: Executor, buffer: torch.Tensor) -> tuple[float, list[Event]]:
    record: list[Event] = []
    interval = together(partial(executor.run, buffer, record))
    ((begin, _),) = first_to_last(all_intervals([interval]))
    return begin, record


def _sparing_report(rank: int, repetitions: int, text: str) -> Callable[[int], None]:
    """Rank 0 reports now and then: every report wakes the launcher, which takes a core for a moment."""
    last = perf_counter()

    def tell(done: int) -> None:
        nonlocal last
        if rank == 0 and perf_counter() - last > REPORT_EVERY:
            last = perf_counter()
            report_progress(done, repetitions, text)

    return tell
