"""Measure many requests with the same ranks, one after the other, with each result as soon as it is there."""

import json
from collections.abc import Callable, Sequence

from realcomm.launching.launcher import launch
from realcomm.launching.status import report_progress
from realcomm.launching.types import Network
from realcomm.measuring.measurement import Figures, Measurement

FOUND = "found "  # begins the progress text of a worker that has finished a measurement; its figures follow


def measure_all(
    measurements: Sequence[Measurement],
    ranks: int,
    found: Callable[[Measurement, Figures], None],
    *,
    backend: str = "gloo",
    timeout: float = 600.0,
    network: Network | None = None,
) -> None:
    """Measure with ``ranks`` processes of this machine, and call ``found`` with each measurement and its figures.

    Raise RankFailed, TimedOut and InputError as ``launch`` does, after ``found`` was called with all that was finished.
    """

    def receive(rank: int, done: int, total: int, text: str) -> None:
        if text.startswith(FOUND):
            found(measurements[done], Figures(*json.loads(text.removeprefix(FOUND))))

    launch(_worker, ranks, list(measurements), backend=backend, timeout=timeout, progress=receive, network=network)


def _worker(rank: int, world_size: int, measurements: Sequence[Measurement]) -> None:
    from realcomm.measuring.rank_measurement import measure_figures  # torch comes with it

    for number, measurement in enumerate(measurements):
        figures = measure_figures(rank, world_size, measurement)
        if rank == 0:
            report_progress(number, len(measurements), FOUND + json.dumps(figures))
