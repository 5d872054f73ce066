"""The messages of one of a scenario's algorithms, simulated, for a picture or a file."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import simcomm
from collectives.budget import Gigabyte
from collectives.checks import check_text
from collectives.errors import InputError, ProgramError, TooLarge
from collectives.quoting import quote
from collectives.records.calibration import Calibration
from collectives.records.trace import Trace
from collectives.request import Request
from collectives.training.workload import Training
from ringlab.session import Session
from ringlab.shared.workload import predictable, resolve_training
from scenarios import LoadedScenario
from simcomm.cluster.cluster import Cluster
from simcomm.failing_run import run_to_failure
from simcomm.schedules import check_messages
from simcomm.selection import resolve_auto
from simcomm.time_models.choice import time_model

T = TypeVar("T")


@dataclass(frozen=True)
class OneRun:
    """One of a scenario's algorithms at one size: the last at the largest, unless ``algorithm`` or ``nbytes`` say.

    Where the scenario asks for no collective, it is the first steps of a training.
    """

    scenario: LoadedScenario
    calibration: Calibration | None = None
    engine: str | None = None
    algorithm: str | None = None
    nbytes: int | None = None

    def simulate(self) -> Trace:
        """Return its trace. Raise InputError for a name that is not in the scenario."""
        asked, cluster = self._asked(), self.scenario.cluster
        options: dict[str, Any] = {"calibration": self.calibration, "engine": self.engine}
        options["trouble"] = self.scenario.trouble
        if isinstance(asked, Training):
            training = resolve_training(asked, cluster, self.calibration)
            _check_recorded(training, cluster)
            return simcomm.train(training, cluster, **options)
        request = resolve_auto(asked, cluster, self.calibration)
        _check_recorded(request, cluster)
        return simcomm.run(request, cluster, **options)

    def simulate_to_failure(self) -> Trace:
        """Return its trace or, of a program that is wrong, what happens until it goes wrong. Raise InputError."""
        try:
            return self.simulate()
        except ProgramError as error:
            asked = self._asked()
            if isinstance(asked, Training):
                raise
            request = resolve_auto(asked, self.scenario.cluster, self.calibration)
            return run_to_failure(request, self.scenario.cluster, error, calibration=self.calibration)

    def check_recordable(self) -> None:
        """Raise TooLarge where ``simulate`` will, before anything is simulated; of ``auto`` that is not known yet.

        Raises InputError for a name that is not in the scenario, and ProgramError for a program that cannot work.
        """
        asked = self._asked()
        called = asked.program if isinstance(asked, Training) else asked.algorithm
        if called is not None and called.is_decided:
            _check_recorded(asked, self.scenario.cluster)

    def _asked(self) -> Request | Training:
        """Return what the scenario asks for, which may be ``auto``."""
        comparison = self.scenario.collective
        if comparison is None:
            return self._find({one.sync_name: one for one in predictable(self.scenario.trainings)})
        found = self._find({one.label: one for one in comparison.programs})
        return comparison.request(found, self.nbytes or max(comparison.sizes), self.scenario.cluster.world_size)

    def _find(self, candidates: Mapping[str, T]) -> T:
        """Return the candidate of this label, the last without a name.

        A name without parameters will do where one candidate has it, and ``my.py:fancy`` as the scenario writes it.
        """
        name = self.algorithm and check_text("algorithm", self.algorithm, "ring").rpartition(".py:")[2]
        known = ", ".join(candidates) or "none that can be predicted"
        fitting = [label for label in candidates if name in (None, label)]
        fitting = fitting or [label for label in candidates if name == label.partition("[")[0]]
        if not fitting or (name is not None and len(fitting) > 1):
            problem = "more than one algorithm" if fitting else "no algorithm"
            raise InputError(f"{self.scenario.path}: {problem} {quote(name or '')} in it; there are {known}")
        return candidates[fitting[-1]]


def _check_recorded(asked: Request | Training, cluster: Cluster) -> None:
    """Raise TooLarge for more messages than can be looked at one by one, of all steps of a training together."""
    model = time_model(cluster)
    carried = model.carried(asked)
    if carried is not None and (isinstance(asked, Request) or not model.is_whole(asked)):
        most, too_many = Gigabyte.RECORDED, "to be looked at one by one"
        check_messages(carried.algorithm, cluster.world_size, carried.root, carried.times, most, too_many)


def check_traceable(scenario: LoadedScenario) -> None:
    """Raise TooLarge where a trace surely has too many messages to be written, before anything is simulated."""
    try:
        OneRun(scenario).check_recordable()
    except TooLarge as error:
        raise TooLarge(f"--trace: {error}; or leave --trace out") from error


def algorithm_names(scenario: LoadedScenario) -> list[str]:
    """Return the names of a scenario's runs, of which the last is taken unless another is named."""
    if scenario.collective is not None:
        return [algorithm.label for algorithm in scenario.collective.programs]
    return [training.sync_name for training in predictable(scenario.trainings)]


def write_run(scenario: LoadedScenario, session: Session, path: Path) -> None:
    """Write the Trace of the scenario's last algorithm at its largest size, by the session's engine."""
    with session.computing(f"writing {path}"):
        OneRun(scenario, session.find_calibration(scenario), session.engine).simulate().write(path)
