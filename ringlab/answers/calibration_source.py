"""Which calibration a scenario needs, and where it comes from."""

import os
from pathlib import Path

from collectives.errors import InputError
from collectives.records.calibration import Calibration, cache_file, read_calibration
from collectives.workload import Training
from ringlab.answers.answer import predictable
from ringlab.terminal.progress import Progress
from scenarios import Scenario
from simcomm.simulate import CALIBRATED_RANKS


def needed_ranks(scenario: Scenario) -> int | None:
    """With how many ranks this machine must be calibrated to predict the scenario; None where it need not be."""
    clusters = [scenario.cluster, *(other.cluster for other in scenario.what_ifs)]
    if all(cluster.transport is not None for cluster in clusters) and not _uncomputed(scenario):
        return None
    return scenario.cluster.world_size if scenario.cluster.is_here else CALIBRATED_RANKS


def _uncomputed(scenario: Scenario) -> list[Training]:
    return [job for job in predictable(scenario.trainings) if job.compute is None]


def find(scenario: Scenario, file: Path | None) -> Calibration | None:
    """The calibration from ``--calibration FILE`` or, where one is needed, the cache.

    None where none is needed or none fresh is cached. Raises InputError for a file that cannot be used.
    """
    if file is not None:
        return read_calibration(file)
    ranks = needed_ranks(scenario)
    if ranks is None or not cache_file(ranks).is_file():
        return None
    try:
        cached = read_calibration(cache_file(ranks))
    except InputError:
        return None  # written by another version: as good as none
    return cached if cached.is_fresh() else None


def find_or_make(scenario: Scenario, file: Path | None, timeout: float, progress: Progress) -> Calibration | None:
    """The same, but measured now, and kept, where nothing fresh holds all that the scenario needs."""
    found, ranks = find(scenario, file), needed_ranks(scenario)
    if file is not None or ranks is None or (found is not None and _holds(found, _uncomputed(scenario))):
        return found
    return make(ranks, _uncomputed(scenario), timeout, progress)


def to_choose(scenario: Scenario, file: Path | None, timeout: float, progress: Progress) -> Calibration | None:
    """What the choice of ``auto`` needs before a run: nothing without it, else as ``find_or_make``.

    The processes of ``torchrun`` make none: they would calibrate beside each other. Raises InputError.
    """
    question, jobs = scenario.collective, predictable(scenario.trainings)
    algorithms = [*(question.algorithms if question else ()), *(job.gradient_sync for job in jobs)]
    if not any(algorithm is not None and algorithm.is_auto for algorithm in algorithms):
        return None
    if "TORCHELASTIC_RUN_ID" in os.environ:
        return find(scenario, file)
    return find_or_make(scenario, file, timeout, progress)


def make(ranks: int, trainings: list[Training], timeout: float, progress: Progress) -> Calibration:
    """Measure this machine with so many ranks, for these trainings, and keep the result."""
    import realcomm

    with progress.task(f"calibrating this machine with {ranks} ranks") as tick:
        calibration = realcomm.calibrate(ranks, trainings, timeout=timeout, progress=tick)
    calibration.write(cache_file(ranks))
    return calibration


def _holds(calibration: Calibration, trainings: list[Training]) -> bool:
    known = {(point.model, point.dataset, point.batch_size) for point in calibration.compute}
    return all((job.model, job.dataset, job.batch_size) in known for job in trainings)
