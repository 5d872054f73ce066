"""Which calibration a scenario needs, and where it comes from; ``CalibrationAnswer``."""

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from collectives.checks import check_path, check_sequence, check_whole_number
from collectives.errors import InputError, RunFailed
from collectives.records.calibration import Calibration, cache_file, is_cached, read_calibration
from collectives.units import count
from collectives.workload import Training, check_training
from ringlab.answers.calibration_noise import find_noise
from ringlab.answers.progress import NoProgress, Progress
from ringlab.answers.record import Record
from ringlab.answers.workload import predictable
from scenarios import Scenario
from simcomm.cluster.calibrated import calibration_ranks

Source = Calibration | Path | str | None  # a calibration, its file, or the cached one


@dataclass(frozen=True)
class CalibrationAnswer(Record):
    """What ``calibrate`` measured, and the file in which predictions find it for a day; "" where none could be."""

    calibration: Calibration
    file: str

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "calibration", "file": self.file, **asdict(self.calibration)}


def needed_ranks(scenario: Scenario) -> int | None:
    """Return for how many ranks this machine must be calibrated to predict the scenario; None where it need not be."""
    clusters = [scenario.cluster, *(other.cluster for other in scenario.what_ifs)]
    if all(cluster.transport is not None for cluster in clusters) and not _trainings_to_time(scenario):
        return None
    return calibration_ranks(scenario.cluster)


def find_calibration(scenario: Scenario, source: Source = None, backend: str = "gloo") -> Calibration | None:
    """Return the calibration given or read from a file; else the cached one, if one is needed and a fresh one is there.

    ``backend`` is what the cached one was measured with. Raises InputError for a file that cannot be used, or a value
    that is neither a calibration nor a file.
    """
    if source is not None:
        return source if isinstance(source, Calibration) else read_calibration(check_path("calibration", source))
    ranks = needed_ranks(scenario)
    if ranks is None or not is_cached(ranks, backend):
        return None
    try:
        cached = read_calibration(cache_file(ranks, backend))
    except InputError:
        return None  # written by another version: as good as none
    return cached if cached.is_fresh() else None


def is_calibrated(scenario: Scenario) -> bool:
    """Return whether the cache has a fresh calibration with all that the scenario needs, or it needs none."""
    found = find_calibration(scenario)
    return needed_ranks(scenario) is None or (found is not None and _has_phases(found, _trainings_to_time(scenario)))


def find_or_calibrate(
    scenario: Scenario, source: Source = None, *, backend: str = "gloo", timeout: float, progress: Progress
) -> Calibration | None:
    """Return what ``find_calibration`` does; where that lacks something that the scenario needs, calibrate now."""
    found, ranks = find_calibration(scenario, source, backend), needed_ranks(scenario)
    if source is not None or ranks is None or (found is not None and _has_phases(found, _trainings_to_time(scenario))):
        return found
    trainings = _trainings_to_time(scenario)
    found = calibrate(
        ranks, trainings, backend=backend, timeout=timeout, progress=progress, accept_noise=True
    ).calibration
    return found


def calibration_to_choose(
    scenario: Scenario, source: Source = None, *, backend: str = "gloo", timeout: float, progress: Progress
) -> Calibration | None:
    """Return what resolving ``auto`` needs before a run: nothing where no algorithm is ``auto``.

    The processes of ``torchrun`` do not calibrate: they would do it beside each other. Raises InputError.
    """
    comparison, trainings = scenario.collective, predictable(scenario.trainings)
    algorithms = [*(comparison.algorithms if comparison else ()), *(one.gradient_sync for one in trainings)]
    if not any(algorithm is not None and algorithm.is_auto for algorithm in algorithms):
        return None
    if "TORCHELASTIC_RUN_ID" in os.environ:
        return find_calibration(scenario, source, backend)
    return find_or_calibrate(scenario, source, backend=backend, timeout=timeout, progress=progress)


def calibrate(
    ranks: int = 2,
    trainings: Sequence[Training] = (),
    *,
    backend: str = "gloo",
    timeout: float = 600.0,
    progress: Progress | None = None,
    accept_noise: bool = False,
) -> CalibrationAnswer:
    """Measure this machine with so many ranks, for these trainings, and keep the result in the cache.

    ``backend`` is "gloo" or "nccl"; each launch may take ``timeout`` seconds. Raises InputError for what cannot be
    measured, and RunFailed, also where the times contradict each other, unless ``accept_noise``.

    >>> calibrate(1, accept_noise=True).calibration.ranks  # doctest: +SKIP
    1
    """
    import realcomm

    check_whole_number("ranks", ranks, at_least=1)
    for training in check_sequence("trainings", trainings, of="trainings"):
        check_training(training)
    progress = NoProgress() if progress is None else progress
    with progress.task(f"calibrating this machine with {count(ranks, 'rank')}") as tick:
        calibration = realcomm.calibrate(ranks, trainings, backend=backend, timeout=timeout, progress=tick)
    noise = "; ".join(find_noise(calibration))
    if noise and not accept_noise:
        raise RunFailed(
            f"this machine had other work while it was measured: {noise}. "
            "Nothing is kept: try again when it is idle, or keep this with --accept-noise"
        )
    if noise:
        progress.note(f"warning: this machine had other work while it was measured: {noise}")
    return CalibrationAnswer(calibration, _keep(calibration, progress))


def _keep(calibration: Calibration, progress: Progress) -> str:
    """Write a calibration to the cache and return the file; where that fails, say so and return no name."""
    try:
        file = cache_file(calibration.ranks, calibration.backend)
        calibration.write(file)
    except (InputError, OSError) as error:
        why = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else error
        progress.note(f"warning: this calibration is used now but not kept for later: {why}")
        return ""
    return str(file)


def calibrate_for(scenario: Scenario, ranks: int = 2, **options: Any) -> CalibrationAnswer:
    """Calibrate what a scenario needs; ``ranks`` where it needs no certain number, ``options`` as of ``calibrate``."""
    return calibrate(needed_ranks(scenario) or ranks, list(scenario.trainings), **options)


def _trainings_to_time(scenario: Scenario) -> list[Training]:
    """Return the trainings whose computing times the scenario does not say."""
    return [training for training in predictable(scenario.trainings) if training.compute is None]


def _has_phases(calibration: Calibration, trainings: Sequence[Training]) -> bool:
    known = {(point.model, point.dataset, point.batch_size) for point in calibration.compute}
    return all((training.model, training.dataset, training.batch_size) in known for training in trainings)
