"""``Session``: what a command is carried out with, whatever it is about; above all its calibration."""

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
from ringlab.shared.progress import NoProgress, Progress, TerminalProgress, Tick, check_progress, computing
from ringlab.shared.workload import predictable
from scenarios import LoadedScenario
from simcomm.cluster.calibrated import uses_calibration
from simcomm.performance_models.performance_model import performance_model
from simcomm.uncertainty import find_noise

BACKENDS = ("gloo", "nccl")
RANKS = 2  # that are calibrated where nothing says how many
Source = Calibration | Path | str | None  # a calibration, its file, or the cached one


@dataclass(frozen=True, kw_only=True)
class Session:
    """The options that all layers of a command share.

    ``calibration`` is one, the file of one, or None for the cached one of this machine; ``engine`` is as in
    ``simcomm.run``. Real runs send by ``backend``, "gloo" or "nccl", and end after ``timeout_s`` seconds.
    """

    calibration: Source = None
    engine: str | None = None
    backend: str = "gloo"
    timeout_s: float = TIMEOUT_S
    progress: Progress = field(default_factory=NoProgress)

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise InputError(f"backend {quote(self.backend)} is not known; there are {' and '.join(BACKENDS)}")
        check_number("timeout", self.timeout_s, "seconds", above=0)

    @property
    def file(self) -> Path | None:
        """The file that the calibration is read from, if one is given."""
        return None if self.calibration is None or isinstance(self.calibration, Calibration) else Path(self.calibration)

    def with_calibration(self, calibration: Calibration | None) -> "Session":
        """Return the session with a calibration that was found for it."""
        return replace(self, calibration=calibration)

    def computing(self, text: str) -> AbstractContextManager[Tick]:
        """Return a context for computing that may take long, which is shown only if it does."""
        return computing(self.progress, text)

    def find_calibration(self, scenario: LoadedScenario) -> Calibration | None:
        """Return the calibration given or read from a file; else the cached one, if one is needed and is fresh.

        Raises InputError for a file that cannot be used, or a value that is neither a calibration nor a file.
        """
        given = self.calibration
        file = None if given is None or isinstance(given, Calibration) else check_path("calibration", given)
        if given is not None and not _uses_calibration(scenario):
            raise InputError(f"{scenario.path}: calibration is not used, as all costs are described; remove it")
        if isinstance(given, Calibration):
            return given
        if file is not None:
            return read_calibration(file)
        ranks = needed_ranks(scenario)
        return None if ranks is None else find_cached(ranks, self.backend)

    def is_calibrated(self, scenario: LoadedScenario) -> bool:
        """Return whether there is a calibration with all that the scenario needs, or it needs none."""
        if self.calibration is not None or needed_ranks(scenario) is None:
            return True
        found = self.find_calibration(scenario)
        if found is None:
            return False
        model = performance_model(scenario.cluster, found)
        return all(model.is_calibrated_for(training) for training in _trainings_to_time(scenario))

    def find_or_calibrate(self, scenario: LoadedScenario) -> Calibration | None:
        """Return what ``find_calibration`` does; where that lacks something that the scenario needs, calibrate now.

        Messages are then timed at the sizes of the scenario only, unless an algorithm is ``auto``, which takes about 15
        seconds. A kept calibration that was made while the machine was busy is made again.
        """
        ranks = needed_ranks(scenario)
        if ranks is None or self.is_calibrated(scenario):
            found = self.find_calibration(scenario)
            if ranks is None or self.calibration is not None or not (found and found.load and found.load.is_busy):
                return found
        trainings, calls = _trainings_to_time(scenario), _calls_to_time(scenario)
        return self.calibrate(ranks, trainings, calls, accept_noise=True, brief=not _chooses(scenario))[0]

    def calibration_to_choose(self, scenario: LoadedScenario) -> Calibration | None:
        """Return what resolving ``auto`` needs before a run: nothing where no algorithm is ``auto``.

        Ranks that a launcher has started do not calibrate: they would do it beside each other. Raises InputError.
        """
        if not _chooses(scenario):
            if self.calibration is not None:
                raise InputError(f"{scenario.path}: calibration is for algorithms named auto, and none is; remove it")
            return None
        return self.find_calibration(scenario) if is_launched() else self.find_or_calibrate(scenario)

    def calibrate_for(
        self, scenario: LoadedScenario, ranks: int | None = None, accept_noise: bool = False
    ) -> tuple[Calibration, str]:
        """Calibrate what a scenario needs, with ``ranks`` where it needs no certain number of them.

        Raises InputError also for another number of ranks than it needs.
        """
        needed = needed_ranks(scenario)
        if None not in (ranks, needed) and ranks != needed:
            raise InputError(f"{scenario.path}: ranks is {ranks} and its cluster has {needed}; remove ranks")
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
        """Measure this machine with so many ranks, for these calls and trainings, and keep the result in the cache.

        Where ``brief``, messages of other sizes than those of the calls are hardly measured, and the answer tells of
        noise.

        Returns the file too, "" where it could not be written. Raises InputError for what cannot be measured, and
        RunFailed, also where the machine was busy or the parts disagree, unless ``accept_noise``.
        """
        import realcomm  # predictions do without what launches ranks

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
            self.progress.note(f"warning: this machine was not calm while it was measured: {noise}")
        return calibration, self._keep(calibration)

    def keep_if_none(self, calibration: Calibration) -> None:
        """Keep a calibration for later predictions where the cache has no fresh one of so many ranks.

        One that was made in turns with a run knows the sizes of that run best.
        """
        with inputs_protected():  # what is only looked at may be replaced
            found = find_cached(calibration.ranks, calibration.backend)
        if found is None:
            self._keep(calibration)

    def _keep(self, calibration: Calibration) -> str:
        """Write a calibration to the cache and return the file; where that fails, say so and return no name."""
        try:
            file = cache_file(calibration.ranks, calibration.backend)
            calibration.write(file)
        except (InputError, OSError) as error:
            why = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else error
            self.progress.note(f"warning: this calibration is used now but not kept for later: {why}")
            return ""
        return str(file)


def find_cached(ranks: int, backend: str) -> Calibration | None:
    """Return the cached calibration, if there is one of this machine that is fresh and can be read."""
    try:
        return cached_calibration(ranks, backend)
    except (InputError, OSError):
        return None


def check_session(session: Session | None) -> Session:
    """Return the session, a silent one for None. Raise InputError for anything else."""
    if not isinstance(session, Session | None):
        raise InputError(f"session is {quote(session)}; give a ringlab.session.Session")
    return session or Session()


def session_of(progress: Progress | None, **options: Any) -> Session:
    """Return the session of what is called from Python, where no progress is shown unless it is given."""
    return Session(progress=check_progress(progress), **options)


def real_session(options: RealOptions) -> Session:
    """Return the session of a command that runs ranks of this machine."""
    return Session(
        calibration=options.calibration,
        backend=options.backend,
        timeout_s=options.timeout,
        progress=TerminalProgress(),
    )


def needed_ranks(scenario: LoadedScenario) -> int | None:
    """Return for how many ranks this machine must be calibrated to predict the scenario; None where it need not be."""
    clusters = [scenario.cluster, *(other.cluster for other in scenario.what_ifs)]
    if all(cluster.transport is not None for cluster in clusters) and not _trainings_to_time(scenario):
        return None
    return scenario.cluster.calibration_ranks


def _uses_calibration(scenario: LoadedScenario) -> bool:
    """Return whether a prediction of the scenario, or of one of its what-ifs, depends on a calibration."""
    trainings = [None, *predictable(scenario.trainings)] if scenario.collective else predictable(scenario.trainings)
    clusters = [scenario.cluster, *(other.cluster for other in scenario.what_ifs)]
    return any(uses_calibration(cluster, training) for cluster in clusters for training in trainings)


def _chooses(scenario: LoadedScenario) -> bool:
    """Return whether an algorithm of the scenario is ``auto``."""
    comparison, trainings = scenario.collective, predictable(scenario.trainings)
    algorithms = [*(comparison.algorithms if comparison else ()), *(one.gradient_sync for one in trainings)]
    return any(algorithm is not None and not algorithm.is_decided for algorithm in algorithms)


def _calls_to_time(scenario: LoadedScenario) -> list[CollectiveCall]:
    """Return the calls whose messages are measured at exactly their sizes."""
    asked = scenario.collective.calls(scenario.cluster.world_size) if scenario.collective else ()
    return performance_model(scenario.cluster).calls_to_measure(asked)


def _trainings_to_time(scenario: LoadedScenario) -> list[Training]:
    """Return the trainings whose computing times the scenario does not say; torch's own sync is predicted here only."""
    trainings = scenario.trainings if scenario.cluster.is_here else predictable(scenario.trainings)
    return [training for training in trainings if training.compute is None]


def load_scenario(reference: str | Path, *overrides: str) -> scenarios.LoadedScenario:
    """Return what ``scenarios.load`` does; a network of very many links takes seconds to build."""
    with computing(TerminalProgress(), f"reading {reference} and building its network"):
        return scenarios.load(reference, overrides)
