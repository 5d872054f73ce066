"""Measure the costs of this machine's messages, reductions and training steps, by which runs on it are predicted."""

from collections.abc import Sequence

from collectives.records.calibration import Calibration, ComputePoint, Line
from collectives.records.environment import cores, threads_per_rank
from collectives.workload import Training
from realcomm.launching.launcher import launch
from realcomm.launching.types import Progress

Points = list[tuple[int, float]]  # (nbytes, seconds)
NO_MESSAGES = Line(0.0, 0.0, 0.0)


def calibrate(
    ranks: int,
    trainings: Sequence[Training] = (),
    *,
    backend: str = "gloo",
    timeout: float = 600.0,
    progress: Progress | None = None,
) -> Calibration:
    """Measure this machine with ``ranks`` processes, each with its share of the cores, and return the calibration.

    Lines are fitted to the median seconds of messages and reductions by their bytes; with one rank there are no
    messages, and their lines are zero. A step of each of ``trainings`` is timed without communication in ``ranks``
    processes, and alone with one rank's threads and with all cores. Raise InputError, RankFailed and TimedOut as
    ``launch`` does; each launch may take ``timeout`` seconds.

    >>> calibrate(1).one_way.points  # doctest: +SKIP
    []
    """
    points = launch(_worker, ranks, backend=backend, timeout=timeout, progress=progress)[0]
    lines = {name: fit_line(found) for name, found in points.items()}
    distinct = {(each.model, each.dataset, each.batch_size): each for each in trainings}.values()
    compute = [point for training in distinct for point in _compute_points(training, ranks, timeout, progress, backend)]
    return Calibration(
        ranks,
        threads_per_rank(ranks),
        one_way=lines.get("one_way", NO_MESSAGES),
        both_ways=lines.get("both_ways", NO_MESSAGES),
        reduction=lines["reduction"],
        backend=backend,
        compute=compute,
    )


def _worker(rank: int, world_size: int) -> dict[str, Points]:
    from realcomm.measuring.probes import run_probes  # torch comes with it

    return run_probes(rank, world_size)


def fit_line(points: Points) -> Line:
    """Return the line with the least sum of squared relative errors and no negative coefficient.

    >>> line = fit_line([(1000, 3e-6), (2000, 4e-6)])
    >>> round(line.fixed * 1e6, 6), round(line.per_byte * 1e9, 6)  # microseconds, nanoseconds a byte
    (2.0, 1.0)
    """
    import numpy as np
    from scipy.optimize import nnls  # slow to import

    nbytes, seconds = np.array(points, dtype=float).T
    relative = np.stack([1 / seconds, nbytes / seconds], axis=1)  # times (fixed, per_byte): fitted over measured
    (fixed, per_byte), _ = nnls(relative, np.ones(len(points)))
    worst = float(np.abs(relative @ (fixed, per_byte) - 1).max())
    return Line(float(fixed), float(per_byte), worst, points)


def _compute_points(
    training: Training, ranks: int, timeout: float, progress: Progress | None, backend: str
) -> list[ComputePoint]:
    """Measure the training's phases with every number of processes and threads that a prediction needs."""
    from realcomm.training.compute_phases import measure_phases  # torch and torchvision come with it

    threads = threads_per_rank(ranks)
    settings = dict.fromkeys([(ranks, threads), (1, threads), (1, cores())])
    return [measure_phases(training, processes, each, timeout, progress, backend) for processes, each in settings]
