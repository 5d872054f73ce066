"""Measure many requests with the same ranks, one after the other, with each result as soon as it is there."""

import json
from collections.abc import Callable, Sequence

from realcomm.launching.launcher import launch
from realcomm.launching.status import report_progress
from realcomm.launching.types import Network
from realcomm.measuring.measurement import Figures, Measurement, RankMeasurement

FOUND = "found "  # begins the progress text of a worker that has finished a measurement; its figures follow


def measure_all(
    measurements: Sequence[Measurement],
    ranks: int,
    found: Callable[[Measurement, Figures], None],
    *,
    backend: str = "gloo",
    timeout: float = 600.0,
    network: Network | None = None,
) -> list[list[RankMeasurement]]:
    """Measure with ``ranks`` processes of this machine, and call ``found`` with each measurement and its figures.

    Return for each measurement what each rank found, with the events of the repetition that took the median time.

    Raise RankFailed, TimedOut and InputError as ``launch`` does, after ``found`` was called with all that was finished.
    """

    def receive(rank: int, done: int, total: int, text: str) -> None:
        if text.startswith(FOUND):
            found(measurements[done], Figures(*json.loads(text.removeprefix(FOUND))))

    by_rank: list[list[RankMeasurement]] = launch(
        *(_worker, ranks, list(measurements)), backend=backend, timeout=timeout, progress=receive, network=network
    )
    return [list(of_ranks) for of_ranks in zip(*by_rank, strict=True)]


def _worker(rank: int, world_size: int, measurements: Sequence[Measurement]) -> list[RankMeasurement]:
    from realcomm.measuring.rank_measurement import figures_of, measure_rank  # torch comes with it

    measured = []
    for number, measurement in enumerate(measurements):
        measured.append(measure_rank(rank, world_size, measurement))
        figures = figures_of(measured[-1])
        if rank == 0:
            report_progress(number, len(measurements), FOUND + json.dumps(figures))
    return measured
