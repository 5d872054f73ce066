"""``Session``: the calibration, backend, timeout and progress reports of a command."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import scenarios
from collectives.call import CollectiveCall
from collectives.checks import check_number, check_path, check_sequence, check_whole_number
from collectives.errors import InputError, RunFailed
from collectives.input_files import inputs_protected
from collectives.quoting import quote
from collectives.records.calibration import Calibration, cache_file, cached_calibration, read_calibration
from collectives.training.workload import Training, check_training
from collectives.units import count
from collectives.variables import is_launched
from ringlab.shared.options import TIMEOUT_S, RealOptions
from ringlab.shared.progress import Progress, TerminalProgress, Tick, check_progress, computing
from ringlab.shared.workload import predictable
from scenarios import LoadedScenario
from simcomm.cluster.calibrated import uses_calibration
from simcomm.performance_models.performance_model import performance_model
from simcomm.uncertainty import find_noise

BACKENDS = ("gloo", "nccl")
RANKS = 2  # default number of ranks to calibrate
Source = Calibration | Path | str | None  # a calibration, its file, or None for the cached one


@dataclass(frozen=True, kw_only=True)
class Session:
    """The options of a command: the source of its calibration, and the backend, timeout and progress of its runs.

    ``calibration`` is a Calibration, its file, or None for this machine's cached calibration. Real ranks use
    ``backend``, "gloo" or "nccl", and are stopped after ``timeout_s`` seconds.
    """

    calibration: Source = None
    backend: str = "gloo"
    timeout_s: float = TIMEOUT_S
    progress: Progress = field(default_factory=Progress)

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise InputError(f"unknown backend {quote(self.backend)}; use {' or '.join(BACKENDS)}")
        check_number("timeout", self.timeout_s, "seconds", above=0)

    @property
    def file(self) -> Path | None:
        """The calibration file, or None if the session has no calibration or a Calibration object."""
        return None if self.calibration is None or isinstance(self.calibration, Calibration) else Path(self.calibration)

    def with_calibration(self, calibration: Calibration | None) -> "Session":
        return replace(self, calibration=calibration)

    def computing(self, text: str) -> AbstractContextManager[Tick]:
        """Return a context that reports the progress of a long computation, which ``text`` describes."""
        return computing(self.progress, text)

    def find_calibration(self, scenario: LoadedScenario) -> Calibration | None:
        """Return the session's calibration. If it is None and the scenario requires one, return the cached one.

        Returns None if no calibration is required, or if the cached one is missing or too old. Raises InputError if the
        file is invalid, or if the session has a calibration that the scenario does not use.
        """
        source = self.calibration
        if source is None:
            ranks = needed_ranks(scenario)
            return None if ranks is None else find_cached(ranks, self.backend)
        given = source if isinstance(source, Calibration) else check_path("calibration", source)
        if not _uses_calibration(scenario):
            raise InputError(f"{scenario.path} states all costs, so a calibration has no effect; omit it")
        return given if isinstance(given, Calibration) else read_calibration(given)

    def is_calibrated(self, scenario: LoadedScenario) -> bool:
        """Return whether the scenario can be predicted without measuring this machine first."""
        if self.calibration is not None or needed_ranks(scenario) is None:
            return True
        calibration = self.find_calibration(scenario)
        if calibration is None:
            return False
        model = performance_model(scenario.cluster, calibration)
        return all(model.is_calibrated_for(training) for training in _trainings_to_time(scenario))

    def find_or_calibrate(self, scenario: LoadedScenario) -> Calibration | None:
        """Return the scenario's calibration, or None if it needs none. If it is missing, incomplete or noisy, measure.

        Measuring takes about 15 seconds. Unless an algorithm is ``auto``, most sizes that the scenario does not use are
        omitted. A calibration that was passed to the session is used even if it is noisy.
        """
        ranks = needed_ranks(scenario)
        if ranks is None or self.is_calibrated(scenario):
            calibration = self.find_calibration(scenario)
            is_noisy = calibration is not None and calibration.load is not None and calibration.load.is_busy
            if ranks is None or self.calibration is not None or not is_noisy:
                return calibration
        trainings, calls = _trainings_to_time(scenario), _calls_to_time(scenario)
        return self.calibrate(ranks, trainings, calls, accept_noise=True, brief=not _has_auto(scenario))[0]

    def calibration_to_choose(self, scenario: LoadedScenario) -> Calibration | None:
        """Return the calibration that selects the algorithm for ``auto``. Return None if no algorithm is ``auto``.

        Under a launcher, nothing is measured, because ranks would disturb each other. Raises InputError if the session
        has a calibration but no algorithm is ``auto``.
        """
        if not _has_auto(scenario):
            if self.calibration is not None:
                raise InputError(f"{scenario.path}: a calibration only affects algorithm auto; omit the calibration")
            return None
        return self.find_calibration(scenario) if is_launched() else self.find_or_calibrate(scenario)

    def calibrate_for(
        self, scenario: LoadedScenario, ranks: int | None = None, accept_noise: bool = False
    ) -> tuple[Calibration, str]:
        """Measure this machine for a scenario, and return the calibration and its cache file.

        The default number of ``ranks`` is the one that the scenario requires, or 2. Raises InputError if the scenario
        requires another number of ranks. Also raises the errors of ``calibrate``.
        """
        needed = needed_ranks(scenario)
        if None not in (ranks, needed) and ranks != needed:
            raise InputError(f"{scenario.path}: ranks must be {needed}, as in its cluster, not {ranks}; omit ranks")
        chosen = needed or (RANKS if ranks is None else ranks)
        return self.calibrate(chosen, scenario.trainings, _calls_to_time(scenario), accept_noise)

    def calibrate(
        self,
        ranks: int = RANKS,
        trainings: Sequence[Training] = (),
        calls: Sequence[CollectiveCall] = (),
        accept_noise: bool = False,
        brief: bool = False,
    ) -> tuple[Calibration, str]:
        """Measure this machine for ``calls`` and ``trainings``, and return the calibration and its cache file.

        The file is "" if it cannot be written. If ``brief`` is True, few message sizes other than those of ``calls``
        are measured, and noise is not reported. Raises InputError if a value is invalid. Raises RunFailed if a rank
        fails, or if measurements are noisy and ``accept_noise`` is not set.
        """
        import realcomm  # predictions do not need it

        check_whole_number("ranks", ranks, at_least=1)
        for training in check_sequence("trainings", trainings, of="trainings"):
            check_training(training)
        with self.progress.task(f"calibrating this machine with {count(ranks, 'rank')}") as tick:
            calibration = realcomm.calibrate(
                ranks,
                trainings,
                calls=calls,
                backend=self.backend,
                all_sizes=not brief,
                timeout=self.timeout_s,
                progress=tick,
            )
        noise = "; ".join(find_noise(calibration))
        if noise and not accept_noise:
            raise RunFailed(
                f"measurements on this machine were too noisy: {noise}. Nothing was saved; try again when "
                "the machine is idle, or save them with --accept-noise"
            )
        if noise and not brief:
            self.progress.note(f"warning: measurements on this machine were noisy: {noise}")
        return calibration, self._cache(calibration)

    def report_images(self, trainings: Sequence[Training]) -> None:
        """Report where CIFAR-10's images come from if a training uses them. Raise InputError if they are missing."""
        if any(training.dataset == "cifar10" for training in trainings):
            from realcomm.training.datasets import describe_images  # imports torch

            for note in describe_images(trainings[0]):  # all trainings of a scenario have the same images
                self.progress.note(note)

    def keep_if_none(self, calibration: Calibration) -> None:
        """Cache the calibration of a ``thorough`` comparison, unless the cache has one, which covers more sizes."""
        if find_cached(calibration.ranks, calibration.backend) is None:
            self._cache(calibration)

    def _cache(self, calibration: Calibration) -> str:
        try:
            file = cache_file(calibration.ranks, calibration.backend)
            calibration.write(file)
        except (InputError, OSError) as error:
            why = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else error
            self.progress.note(f"warning: this calibration is used but was not saved: {why}")
            return ""
        return str(file)


def find_cached(ranks: int, backend: str) -> Calibration | None:
    """Return the cached calibration of this machine. Return None if it is missing, older than a day or invalid."""
    try:
        with inputs_protected():  # so that the command may replace the file
            return cached_calibration(ranks, backend)
    except (InputError, OSError):
        return None


def check_session(session: Session | None) -> Session:
    """Return ``session``. If it is None, return a session with default options, which reports no progress.

    Raise InputError for another type.
    """
    if not isinstance(session, Session | None):
        raise InputError(f"session must be a ringlab.session.Session, not {quote(session)}")
    return session or Session()


def session_of(progress: Progress | None, **options: Any) -> Session:
    """Return a session for a call from Python. If ``progress`` is None, nothing is reported."""
    return Session(progress=check_progress(progress), **options)


def real_session(options: RealOptions) -> Session:
    """Return the session of a command that runs real ranks. It reports progress on standard error."""
    return Session(
        calibration=options.calibration,
        backend=options.backend,
        timeout_s=options.timeout,
        progress=TerminalProgress(),
    )


def gpu_names() -> list[str]:
    import torch  # not required for CPU ranks

    return [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]


def needed_ranks(scenario: LoadedScenario) -> int | None:
    """Return the number of ranks for which a scenario requires a calibration, or None if it requires none."""
    clusters = [scenario.cluster, *(what_if.cluster for what_if in scenario.what_ifs)]
    if all(cluster.transport is not None for cluster in clusters) and not _trainings_to_time(scenario):
        return None
    return scenario.cluster.calibration_ranks


def _uses_calibration(scenario: LoadedScenario) -> bool:
    trainings = [None, *predictable(scenario.trainings)] if scenario.collective else predictable(scenario.trainings)
    clusters = [scenario.cluster, *(what_if.cluster for what_if in scenario.what_ifs)]
    return any(uses_calibration(cluster, training) for cluster in clusters for training in trainings)


def _has_auto(scenario: LoadedScenario) -> bool:
    comparison, trainings = scenario.collective, predictable(scenario.trainings)
    algorithms = [*(comparison.algorithms if comparison else ()), *(training.gradient_sync for training in trainings)]
    return any(algorithm is not None and not algorithm.is_decided for algorithm in algorithms)


def _calls_to_time(scenario: LoadedScenario) -> list[CollectiveCall]:
    calls = scenario.collective.calls(scenario.cluster.world_size) if scenario.collective else ()
    return performance_model(scenario.cluster).calls_to_measure(calls)


def _trainings_to_time(scenario: LoadedScenario) -> list[Training]:
    """Return the training runs without stated compute times. Omit DDP runs unless the cluster is this machine."""
    trainings = scenario.trainings if scenario.cluster.is_here else predictable(scenario.trainings)
    return [training for training in trainings if training.compute is None]


def load_scenario(reference: str | Path, *overrides: str) -> scenarios.LoadedScenario:
    """Read a scenario for a command and report progress, because building a large network takes seconds."""
    with computing(TerminalProgress(), f"reading {reference} and building its network"):
        return scenarios.load(reference, overrides)
