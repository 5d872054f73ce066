"""The messages of one of a scenario's algorithms, simulated, for a picture or a file."""

from typing import TypeVar

import simcomm
from collectives.calibration.calibration import Calibration
from collectives.checks import check_text
from collectives.errors import InputError, ProgramError, TooLarge
from collectives.quoting import quote
from collectives.records.trace import Trace
from collectives.request import Request
from collectives.workload import Training
from ringlab.shared.workload import predictable, resolve_training
from scenarios import Scenario
from scenarios.loader import CollectiveComparison
from simcomm.cluster.cluster import Cluster
from simcomm.compiled.planning import engine_input
from simcomm.failing_run import run_to_failure
from simcomm.schedules import check_messages
from simcomm.selection import resolve_auto
from simcomm.time_models.choice import time_model

T = TypeVar("T")


def predict_trace(
    scenario: Scenario,
    calibration: Calibration | None = None,
    algorithm: str | None = None,
    nbytes: int | None = None,
    engine: str | None = None,
) -> Trace:
    """Simulate one of the scenario's algorithms: the last at the largest size, unless ``algorithm`` or ``nbytes`` say.

    Where the scenario asks for no collective, it is the first steps of a training. Raises InputError for a name that
    is not in the scenario.
    """
    comparison, cluster = scenario.collective, scenario.cluster
    if comparison is None:
        training = resolve_training(_find(algorithm, _syncs(scenario), scenario), cluster, calibration)
        _check_recorded(training, cluster)
        return simcomm.train(training, cluster, calibration=calibration, engine=engine, trouble=scenario.trouble)
    request = _find_request(scenario, comparison, calibration, algorithm, nbytes)
    _check_recorded(request, cluster)
    return simcomm.run(request, cluster, calibration=calibration, engine=engine, trouble=scenario.trouble)


def check_recordable(scenario: Scenario, algorithm: str | None = None, nbytes: int | None = None) -> None:
    """Raise TooLarge where ``predict_trace`` will, before anything is simulated; of ``auto`` that is not known yet.

    Raises InputError for a name that is not in the scenario, and ProgramError for a program that cannot work.
    """
    comparison = scenario.collective
    asked: Request | Training
    if comparison is None:
        training = _find(algorithm, _syncs(scenario), scenario)
        asked, called = training, training.program
    else:
        asked = _requested(scenario, comparison, algorithm, nbytes)
        called = asked.algorithm
    if called is not None and called.is_decided:
        _check_recorded(asked, scenario.cluster)


def _check_recorded(asked: Request | Training, cluster: Cluster) -> None:
    """Raise TooLarge for more messages than can be looked at one by one, of all steps of a training together."""
    model = time_model(cluster)
    carried = model.carried(asked)
    if carried is not None and (isinstance(asked, Request) or not model.is_whole(asked)):
        most, too_many = engine_input.MOST_RECORDED, "to be looked at one by one"
        check_messages(carried.algorithm, cluster.world_size, carried.root, carried.times, most, too_many)


def check_traceable(scenario: Scenario) -> None:
    """Raise TooLarge where a trace surely has too many messages to be written, before anything is simulated."""
    try:
        check_recordable(scenario)
    except TooLarge as error:
        raise TooLarge(f"--trace: {error}; or leave --trace out") from error


def predict_to_failure(
    scenario: Scenario, calibration: Calibration | None = None, algorithm: str | None = None, nbytes: int | None = None
) -> Trace:
    """Return what ``predict_trace`` does or, of a program that is wrong, what happens until it goes wrong.

    Raises InputError for what ``predict_trace`` refuses otherwise.
    """
    try:
        return predict_trace(scenario, calibration, algorithm, nbytes)
    except ProgramError as error:
        if scenario.collective is None:
            raise
        request = _find_request(scenario, scenario.collective, calibration, algorithm, nbytes)
        return run_to_failure(request, scenario.cluster, error, calibration=calibration)


def _find_request(
    scenario: Scenario,
    comparison: CollectiveComparison,
    calibration: Calibration | None,
    algorithm: str | None,
    nbytes: int | None,
) -> Request:
    """Return the request for one of a scenario's algorithms, ``auto`` resolved."""
    return resolve_auto(_requested(scenario, comparison, algorithm, nbytes), scenario.cluster, calibration)


def _requested(
    scenario: Scenario, comparison: CollectiveComparison, algorithm: str | None, nbytes: int | None
) -> Request:
    """Return the request for one of a scenario's algorithms, which may be ``auto``."""
    found = _find(algorithm, {one.label: one for one in comparison.programs}, scenario)
    return comparison.request(found, nbytes or max(comparison.sizes), scenario.cluster.world_size)


def _syncs(scenario: Scenario) -> dict[str, Training]:
    return {training.sync_name: training for training in predictable(scenario.trainings)}


def algorithm_names(scenario: Scenario) -> list[str]:
    """Return the names from which ``predict_trace`` takes the last, unless told another."""
    if scenario.collective is not None:
        return [algorithm.label for algorithm in scenario.collective.programs]
    return [training.sync_name for training in predictable(scenario.trainings)]


def _find(name: str | None, candidates: dict[str, T], scenario: Scenario) -> T:
    """Return the candidate of this label, the last without a name.

    A name without parameters will do where one candidate has it, and ``my.py:fancy`` as the scenario writes it.
    """
    name = name and check_text("algorithm", name, "ring").rpartition(".py:")[2]
    known = ", ".join(candidates) or "none that can be predicted"
    fitting = [label for label in candidates if name in (None, label)]
    fitting = fitting or [label for label in candidates if name == label.partition("[")[0]]
    if not fitting or (name is not None and len(fitting) > 1):
        problem = "more than one algorithm" if fitting else "no algorithm"
        raise InputError(f"{scenario.path}: {problem} {quote(name or '')} in it; there are {known}")
    return candidates[fitting[-1]]
