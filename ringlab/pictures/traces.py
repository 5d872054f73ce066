"""Simulates a scenario's algorithms and records their messages, for a picture, a trace file or the player."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from collectives.budget import Gigabyte
from collectives.call import CollectiveCall
from collectives.catalogue import find_algorithm
from collectives.checks import check_text
from collectives.declaration import Algorithm
from collectives.errors import InputError, ProgramError, TooLarge
from collectives.quoting import quote
from collectives.records.calibration import Calibration
from collectives.records.trace import Trace
from collectives.training.workload import Training
from ringlab.session import Session
from ringlab.shared.progress import Tick
from ringlab.shared.workload import predictable, resolve_training
from scenarios import LoadedScenario
from simcomm.failing_run import run_to_failure
from simcomm.model.faults import NO_FAULTS
from simcomm.performance_models.performance_model import PerformanceModel, performance_model
from simcomm.schedules import check_messages
from simcomm.selection import resolve_auto
from simcomm.simulate import simulate
from viz.player.page import MOST_RUNS
from viz.player.runs import PlayedRun

T = TypeVar("T")


@dataclass(frozen=True)
class OneRun:
    """One algorithm of a scenario at one size or, without a collective, the first steps of a training.

    ``algorithm`` is the name of an algorithm of the scenario, or any Algorithm. Default: the scenario's last algorithm.
    ``nbytes`` is the buffer size. Default: the scenario's largest size.
    """

    scenario: LoadedScenario
    calibration: Calibration | None = None
    algorithm: str | Algorithm | None = None
    nbytes: int | None = None

    def simulate(self) -> Trace:
        """Simulate the run and return its trace. Raise InputError if its algorithm is unknown or incorrect."""
        job, cluster = self._asked(), self.scenario.cluster
        resolved: CollectiveCall | Training
        if isinstance(job, Training):
            resolved = resolve_training(job, cluster, self.calibration)
        else:
            resolved = resolve_auto(job, cluster, self.calibration)
        model = performance_model(cluster, self.calibration)
        _check_recorded(resolved, model)
        return simulate(model, resolved, faults=self.scenario.faults)

    def simulate_to_failure(self) -> Trace:
        """Simulate the run and return its trace. If the algorithm is incorrect, the trace ends at its first error.

        Raise InputError if the scenario lacks the algorithm, or if ``nbytes`` is set without a [collective] table.
        """
        try:
            return self.simulate()
        except ProgramError as error:
            job = self._asked()
            if isinstance(job, Training):
                raise
            call = resolve_auto(job, self.scenario.cluster, self.calibration)
            return run_to_failure(call, self.scenario.cluster, error, calibration=self.calibration)

    def check_recordable(self) -> None:
        """Raise TooLarge if the run has too many messages to record. Runs with ``auto`` or DDP are not checked.

        Raises InputError for an unknown algorithm, and ProgramError for an incorrect one.
        """
        job = self._asked()
        called = job.program if isinstance(job, Training) else job.algorithm
        if called is not None and called.is_decided:
            _check_recorded(job, performance_model(self.scenario.cluster))

    def _asked(self) -> CollectiveCall | Training:
        comparison = self.scenario.collective
        if comparison is None:
            if self.nbytes is not None:
                raise InputError(f"{self.scenario.path}: size requires a [collective] table; remove size")
            return self._find({candidate.sync_name: candidate for candidate in predictable(self.scenario.trainings)})
        if isinstance(self.algorithm, Algorithm):
            algorithm = find_algorithm(self.algorithm, comparison.name)
        else:
            algorithm = self._find({candidate.label: candidate for candidate in comparison.programs})
        return comparison.call(algorithm, self.nbytes or max(comparison.sizes), self.scenario.cluster.world_size)

    def _find(self, candidates: Mapping[str, T]) -> T:
        """Return the candidate with the name of the run's algorithm. Default: the last candidate.

        A name without its parameters is accepted if it is unique. For ``my.py:fancy``, the name is ``fancy``.
        """
        name = self.algorithm and check_text("algorithm", self.algorithm, "ring").rpartition(".py:")[2]
        advice = f"use one of {', '.join(candidates)}" if candidates else "none of the scenario's can be predicted"
        fitting = [label for label in candidates if name in (None, label)]
        fitting = fitting or [label for label in candidates if name == label.partition("[")[0]]
        if not fitting or (name is not None and len(fitting) > 1):
            problem = "several algorithms match" if fitting else "no algorithm matches"
            raise InputError(f"{self.scenario.path}: {problem} {quote(name or '')}; {advice}")
        return candidates[fitting[-1]]


def _check_recorded(job: CollectiveCall | Training, model: PerformanceModel) -> None:
    carried = model.carried(job)
    if carried is not None and (isinstance(job, CollectiveCall) or not model.has_no_messages(job)):
        most, too_many = Gigabyte.RECORDED, "to record"
        check_messages(carried.algorithm, model.cluster.world_size, carried.root, carried.times, most, too_many)


def check_traceable(scenario: LoadedScenario) -> None:
    """Raise TooLarge if the trace that ``--trace`` writes has too many messages."""
    try:
        OneRun(scenario).check_recordable()
    except TooLarge as error:
        raise TooLarge(f"--trace: {error}; or remove --trace") from error


def algorithm_names(scenario: LoadedScenario) -> list[str]:
    """Return the names of a scenario's algorithms or gradient syncs. The last one is drawn by default."""
    if scenario.collective is not None:
        return [algorithm.label for algorithm in scenario.collective.programs]
    return [training.sync_name for training in predictable(scenario.trainings)]


def write_run(scenario: LoadedScenario, session: Session, path: Path) -> None:
    """Write the trace of the scenario's last algorithm at its largest size."""
    with session.computing(f"writing {path}"):
        OneRun(scenario, session.find_calibration(scenario)).simulate().write(path)


def predict_runs(
    run: OneRun, tick: Tick = lambda *_: None, leave_out: Callable[[TooLarge], None] | None = None
) -> list[PlayedRun]:
    """Simulate the algorithm of ``run`` for the player or, if it is None, the scenario's last ``MOST_RUNS`` algorithms.

    A single run with faults is followed by the same run without faults. If a run is too large, ``leave_out`` is called
    with the error. If ``leave_out`` is None, the error is raised. Raises InputError for an unknown algorithm.
    """
    names = [] if run.algorithm is not None else algorithm_names(run.scenario)[-MOST_RUNS:]
    selected = [replace(run, algorithm=name) for name in names] or [run]
    runs = []
    for number, each in enumerate(selected):
        tick(0, number, len(selected), f"algorithms, {getattr(each.algorithm, 'label', each.algorithm) or 'the last'}")
        try:
            trace = each.simulate_to_failure()
        except TooLarge as error:
            if leave_out is None:
                raise
            leave_out(error)
            continue
        runs.append(PlayedRun(trace, short_name(trace)))
    if len(runs) == 1 and run.scenario.faults != NO_FAULTS:
        quiet = replace(selected[0], scenario=replace(run.scenario, faults=NO_FAULTS)).simulate()
        runs.append(PlayedRun(quiet, f"{short_name(quiet)} without faults"))
    return runs


def beside_measured(predicted: Sequence[PlayedRun], measured: Sequence[Trace]) -> list[PlayedRun]:
    """Return each measured run, followed by its prediction. Omit the first runs if a player cannot show so many."""
    runs = []
    for trace in measured:
        runs.append(PlayedRun(trace, f"{short_name(trace)}, measured"))
        runs += [replace(run, name=f"{run.name}, predicted") for run in predicted if run.trace.title == trace.title]
    return runs[-(MOST_RUNS - MOST_RUNS % 2) :]


def short_name(trace: Trace) -> str:
    """Return a trace's title without the collective: ``ring`` for ``all_reduce/ring``."""
    return trace.title.partition("/")[2] or trace.title
