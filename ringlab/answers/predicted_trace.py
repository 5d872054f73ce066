"""The messages of one of a scenario's algorithms, simulated, for a picture or a file."""

from typing import TypeVar

import simcomm
from collectives.checks import check_text
from collectives.declaration import Algorithm
from collectives.errors import InputError, ProgramError, TooLarge
from collectives.quoting import quote
from collectives.records.calibration import Calibration
from collectives.records.trace import Trace
from collectives.request import Request
from collectives.schedule.size_check import allowed, ways_out
from collectives.schedule.symbolic_build import message_count
from collectives.workload import Training
from ringlab.answers.workload import predictable, resolve_training
from scenarios import Scenario
from scenarios.loader import CollectiveComparison
from simcomm.failing_run import run_to_failure
from simcomm.schedules import compact_schedule
from simcomm.selection import resolve_auto
from simcomm.training import STEPS

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
        return simcomm.train(training, cluster, calibration=calibration, engine=engine, trouble=scenario.trouble)
    request = _find_request(scenario, comparison, calibration, algorithm, nbytes)
    return simcomm.run(request, cluster, calibration=calibration, engine=engine, trouble=scenario.trouble)


def check_traceable(scenario: Scenario) -> None:
    """Raise TooLarge where ``predict_trace`` surely would, before anything is simulated."""
    comparison, cluster = scenario.collective, scenario.cluster
    if comparison is None:
        training = _find(None, _syncs(scenario), scenario)
        if training.buckets is not None:  # predicted as a whole, without messages
            return
        algorithm, steps = training.gradient_sync, STEPS
    else:
        algorithm, steps = _find(None, _programs(comparison), scenario), 1
    if algorithm is None or algorithm.is_nccl or algorithm.is_auto:
        return
    from simcomm.compiled.planning.engine_input import MOST_RECORDED  # what has few messages does without this engine

    root = 0 if comparison is None else comparison.root
    messages = steps * message_count(compact_schedule(algorithm, cluster.world_size, root))
    most = allowed(MOST_RECORDED)
    if messages > most:
        raise TooLarge(
            f"--trace: {algorithm.label} has {messages:,} messages to be written down, and up to {most:,} will do; "
            f"leave --trace out, or {ways_out(messages, most)}"
        )


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
    found = _find(algorithm, _programs(comparison), scenario)
    request = comparison.request(found, nbytes or max(comparison.sizes), scenario.cluster.world_size)
    return resolve_auto(request, scenario.cluster, calibration)


def _programs(comparison: CollectiveComparison) -> dict[str, Algorithm]:
    return {one.label: one for one in comparison.algorithms if not one.is_nccl}


def _syncs(scenario: Scenario) -> dict[str, Training]:
    return {training.sync_name: training for training in predictable(scenario.trainings)}


def algorithm_names(scenario: Scenario) -> list[str]:
    """Return the names from which ``predict_trace`` takes the last, unless told another."""
    if scenario.collective is not None:
        return [algorithm.label for algorithm in scenario.collective.algorithms if not algorithm.is_nccl]
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
