"""Many collectives measured by the same ranks, one after the other, each told of as soon as it is known."""

import json
from collections.abc import Callable, Sequence

from realcomm.launching.launcher import launch
from realcomm.launching.status import report_progress
from realcomm.measuring.measurement import Figures, Measurement

FOUND = "found "  # begins what a worker reports of a measurement, before its figures


def sweep(
    measurements: Sequence[Measurement],
    ranks: int,
    found: Callable[[Measurement, Figures], None],
    *,
    backend: str = "gloo",
    timeout: float = 600.0,
) -> None:
    """Every measurement was measured by ``ranks`` processes of this machine, and ``found`` was called with its figures.

    Raises RankFailed, TimedOut and InputError as ``launch`` does; by then ``found`` knows all that was done.
    """

    def hear(rank: int, done: int, total: int, text: str) -> None:
        if text.startswith(FOUND):
            found(measurements[done], Figures(*json.loads(text.removeprefix(FOUND))))

    launch(_worker, ranks, list(measurements), backend=backend, timeout=timeout, progress=hear)


def _worker(rank: int, world_size: int, measurements: Sequence[Measurement]) -> None:
    from realcomm.measuring.one_rank import figures  # torch comes with it

    for number, measurement in enumerate(measurements):
        measured = figures(rank, world_size, measurement)
        if rank == 0:
            report_progress(number, len(measurements), FOUND + json.dumps(measured))
