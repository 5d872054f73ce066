"""Which calibration a scenario needs, and where it comes from; ``CalibrationAnswer``."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from collectives.checks import check_path, check_sequence, check_whole_number
from collectives.errors import InputError, RunFailed
from collectives.input_files import inputs_protected
from collectives.records.calibration import Calibration, cache_file, is_cached, read_calibration
from collectives.request import Request
from collectives.units import count
from collectives.workload import Training, check_training
from ringlab.answers.calibration_noise import find_noise
from ringlab.answers.progress import NoProgress, Progress
from ringlab.answers.record import Record
from ringlab.answers.workload import predictable
from scenarios import Scenario

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
    return scenario.cluster.calibration_ranks


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
    return needed_ranks(scenario) is None or (found is not None and _has_phases(found, scenario))


def find_or_calibrate(
    scenario: Scenario, source: Source = None, *, backend: str = "gloo", timeout: float, progress: Progress
) -> Calibration | None:
    """Return what ``find_calibration`` does; where that lacks something that the scenario needs, calibrate now."""
    found, ranks = find_calibration(scenario, source, backend), needed_ranks(scenario)
    if source is not None or ranks is None or (found is not None and _has_phases(found, scenario)):
        return found
    trainings = _trainings_to_time(scenario)
    options: dict[str, Any] = {"backend": backend, "timeout": timeout, "progress": progress, "accept_noise": True}
    return calibrate(ranks, trainings, **options).calibration


def calibration_to_choose(
    scenario: Scenario, source: Source = None, *, backend: str = "gloo", timeout: float, progress: Progress
) -> Calibration | None:
    """Return what resolving ``auto`` needs before a run: nothing where no algorithm is ``auto``.

    Ranks that a launcher has started do not calibrate: they would do it beside each other. Raises InputError.
    """
    from realcomm.launching.torchrun import ranks_started  # predictions do without what launches ranks

    comparison, trainings = scenario.collective, predictable(scenario.trainings)
    algorithms = [*(comparison.algorithms if comparison else ()), *(one.gradient_sync for one in trainings)]
    if not any(algorithm is not None and algorithm.is_auto for algorithm in algorithms):
        return None
    if ranks_started() is not None:
        return find_calibration(scenario, source, backend)
    return find_or_calibrate(scenario, source, backend=backend, timeout=timeout, progress=progress)


def calibrate(
    ranks: int = 2,
    trainings: Sequence[Training] = (),
    *,
    requests: Sequence[Request] = (),
    backend: str = "gloo",
    timeout: float = 600.0,
    progress: Progress | None = None,
    accept_noise: bool = False,
) -> CalibrationAnswer:
    """Measure this machine with so many ranks, for these requests and trainings, and keep the result in the cache.

    ``backend`` is "gloo" or "nccl"; the launch may take ``timeout`` seconds. Raises InputError for what cannot be
    measured, and RunFailed, also where the machine was busy or the parts disagree, unless ``accept_noise``.

    >>> calibrate(1, accept_noise=True).calibration.ranks  # doctest: +SKIP
    1
    """
    import realcomm

    check_whole_number("ranks", ranks, at_least=1)
    for training in check_sequence("trainings", trainings, of="trainings"):
        check_training(training)
    progress = NoProgress() if progress is None else progress
    with progress.task(f"calibrating this machine with {count(ranks, 'rank')}") as tick:
        calibration = realcomm.calibrate(
            ranks, trainings, requests=requests, backend=backend, timeout=timeout, progress=tick
        )
    noise = "; ".join(find_noise(calibration))
    if noise and not accept_noise:
        raise RunFailed(
            f"this machine was not calm while it was measured: {noise}. "
            "Nothing is kept: try again when it is idle, or keep this with --accept-noise"
        )
    if noise:
        progress.note(f"warning: this machine was not calm while it was measured: {noise}")
    return CalibrationAnswer(calibration, _keep(calibration, progress))


def keep_if_none(calibration: Calibration, progress: Progress) -> None:
    """Keep a calibration for later predictions where the cache has no fresh one of so many ranks.

    One that was made in turns with a run knows the sizes of that run best.
    """
    try:
        path = cache_file(calibration.ranks, calibration.backend)
        with inputs_protected():  # what is only looked at may be replaced
            if path.is_file() and read_calibration(path).is_fresh():
                return
    except (InputError, OSError):
        pass  # none that can be read
    _keep(calibration, progress)


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
    ranks = needed_ranks(scenario) or ranks
    requests = [one for one in _requests_to_time(scenario) if not one.algorithm.is_auto]
    return calibrate(ranks, list(scenario.trainings), requests=requests, **options)


def _requests_to_time(scenario: Scenario) -> Sequence[Request]:
    """Return the requests whose hops are timed at exactly their sizes: those of programs for this machine."""
    if not scenario.cluster.is_here or scenario.collective is None:
        return []
    programs = replace(scenario.collective, algorithms=scenario.collective.programs)
    return [*programs.requests(scenario.cluster.world_size)]


def _trainings_to_time(scenario: Scenario) -> list[Training]:
    """Return the trainings whose computing times the scenario does not say."""
    return [training for training in predictable(scenario.trainings) if training.compute is None]


def _has_phases(calibration: Calibration, scenario: Scenario) -> bool:
    """Return whether a calibration knows the phases of a scenario's trainings and, of ranks here, of their overlap."""
    phases, overlap = (
        {(point.model, point.dataset, point.batch_size) for point in points}
        for points in (calibration.compute, calibration.overlap)
    )
    by_gloo = scenario.cluster.is_here and calibration.backend == "gloo" and calibration.ranks > 1
    return all(
        (training.model_kind, training.dataset, training.batch_size)
        in (phases & overlap if by_gloo and training.overlaps else phases)
        for training in _trainings_to_time(scenario)
    )
