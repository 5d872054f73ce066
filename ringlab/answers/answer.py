"""The answer to a scenario: what predict, run and compare write as JSON and show as tables."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import simcomm
from collectives.declaration import Algorithm
from collectives.errors import InputError
from collectives.records.calibration import Calibration
from collectives.records.environment import environment
from collectives.records.summary import COLLECTIVE, TRAINING, Entry, collective_entry, training_entry
from collectives.records.trace import Trace
from collectives.request import Request, make_request
from collectives.workload import Training
from ringlab.answers.repetitions import under
from ringlab.terminal.progress import Progress
from scenarios import CollectiveComparison, Scenario
from simcomm import Cluster
from simcomm.compiled.engine_input import message_count
from simcomm.model.trouble import NO_TROUBLE, Trouble
from simcomm.schedules import checked, traced
from simcomm.selection import resolve_auto
from simcomm.training import STEPS

SCHEMA_VERSION = 1
TOLD = 200_000  # messages in all repetitions, up to which it is told who waited for whom; each takes a kilobyte
KEYS = ("collective", "algorithm", "gradient_sync", "world_size", "bytes")  # what an entry is about
COMPARED = (*COLLECTIVE, *TRAINING)

Answer = dict[str, Any]


def _requests(
    comparison: CollectiveComparison | None, cluster: Cluster, calibration: Calibration | None
) -> Iterator[Request]:
    """Yield what is compared; ``auto`` is what the model chooses for this size on this cluster."""
    for request in comparison.requests(cluster.world_size) if comparison else ():
        yield resolve_auto(request, cluster, calibration)


def _decided(job: Training, cluster: Cluster, calibration: Calibration | None) -> Training:
    """The training with the algorithm that the model chooses, where its gradient sync is ``auto``."""
    if job.gradient_sync is None:
        return job
    sync = make_request(job.gradient_sync, cluster.world_size, job.gradient_bytes, op="mean")
    return replace(job, gradient_sync=resolve_auto(sync, cluster, calibration).algorithm)


def _frame(kind: str, scenario: Scenario) -> Answer:
    about = {"title": scenario.title, "file": str(scenario.path), "cluster": scenario.cluster.title}
    return {"schema_version": SCHEMA_VERSION, "kind": kind, "scenario": about, "environment": environment()}


def predict(scenario: Scenario, calibration: Calibration | None, engine: str | None = None) -> Answer:
    """Simulate the scenario and its what-ifs. Raises InputError where a calibration is needed and missing."""
    how: dict[str, Any] = {"calibration": calibration, "engine": engine}
    answer = _frame("prediction", scenario) | _predicted(scenario, scenario.cluster, scenario.trouble, how)
    answer["what_if"] = [
        {"title": other.title, "cluster": other.cluster.title} | _predicted(scenario, other.cluster, other.trouble, how)
        for other in scenario.what_ifs
    ]
    return answer


def _predicted(scenario: Scenario, cluster: Cluster, trouble: Trouble, how: dict[str, Any]) -> Answer:
    collectives = list[dict[str, Any]]()
    for request in _requests(scenario.collective, cluster, how["calibration"]):
        simulate = partial(simcomm.run, request, cluster, **how)
        number = _messages(request.algorithm, cluster, request.root)
        collectives.append(_under(trouble, simulate, collective_entry, "time_s", number))
        if trouble.slows_ranks and cluster.transport is not None and cluster.transport.gamma == 0:
            collectives[-1]["trouble"]["computing"] = "free"
    training = []
    for job in (_decided(job, cluster, how["calibration"]) for job in predictable(scenario.trainings)):
        simulate = partial(simcomm.train, job, cluster, **how)
        assert job.gradient_sync is not None
        number = STEPS * _messages(job.gradient_sync, cluster)
        training.append(_under(trouble, simulate, partial(training_entry, training=job), "step_s", number))
    return {"collectives": collectives, "training": training}


def _messages(algorithm: Algorithm, cluster: Cluster, root: int = 0) -> int:
    return message_count(traced(algorithm, cluster.world_size, root))


def _under(
    trouble: Trouble, simulate: Callable[..., Trace], entry: Callable[[Trace], Entry], key: str, messages: int
) -> Entry:
    """The entry of a simulation of so many messages."""
    if trouble == NO_TROUBLE:
        return entry(simulate(record=False))
    return under(trouble, simulate, entry, key, record=messages * trouble.runs <= TOLD)


def predictable(trainings: Sequence[Training]) -> list[Training]:
    """The trainings that have a prediction: all but torch's own DistributedDataParallel, which is only measured."""
    return [job for job in trainings if job.gradient_sync is not None]


def measure(
    scenario: Scenario, calibration: Calibration | None, backend: str, timeout: float, progress: Progress
) -> tuple[Answer, Trace | None]:
    """Run the scenario on real processes of this machine. Raises RunFailed.

    What ``auto`` stands for is chosen before, as ``predict`` chooses it with the same calibration. The trace is of
    what ``one_trace`` would simulate: the last algorithm at the largest size, else the last training.
    """
    import realcomm  # torch comes with it

    traces: list[Trace] = []
    collectives = []
    requests = list(_requests(scenario.collective, scenario.cluster, calibration))
    jobs = [_decided(job, scenario.cluster, calibration) for job in scenario.trainings]
    _refuse_broken(scenario, requests, jobs)
    for request in requests:
        with progress.task(f"measuring {request.algorithm.full_name}, {request.nbytes} bytes") as tick:
            traces.append(realcomm.run(request, scenario.cluster, backend=backend, timeout=timeout, progress=tick))
            collectives.append(collective_entry(traces[-1]))
    training = []
    for job in jobs:
        with progress.task(f"training with {job.sync_name}") as tick:
            trace = realcomm.train(job, scenario.cluster, backend=backend, timeout=timeout, progress=tick)
            training.append(training_entry(trace, job))
            traces = traces if collectives else [trace]
    emulated = {} if scenario.cluster.is_here else {"emulated": False}
    answer = _frame("measurement", scenario) | emulated | {"collectives": collectives, "training": training}
    return answer, max(reversed(traces), key=lambda trace: trace.facts.get("nbytes", 0.0), default=None)


def _refuse_broken(scenario: Scenario, requests: list[Request], jobs: list[Training]) -> None:
    """Raise ProgramError for an algorithm that cannot work, before anything is measured."""
    for algorithm, root in dict.fromkeys((request.algorithm, request.root) for request in requests):
        checked(algorithm, scenario.cluster.world_size, root)
    for job in jobs:
        if job.gradient_sync is not None:
            checked(job.gradient_sync, scenario.cluster.world_size)


def compare(predicted: Answer, measured: Answer) -> Answer:
    """Prediction and measurement side by side: each time and rate as predicted, measured and error."""
    answer = {**predicted, "kind": "comparison", "environment": measured["environment"]}
    for part in ("collectives", "training"):
        by_key = {_key(entry): entry for entry in predicted[part]}
        answer[part] = [_side_by_side(by_key.get(_key(entry)), entry) for entry in measured[part]]
    return answer


def _key(entry: Entry) -> tuple[Any, ...]:
    return tuple(entry.get(name) for name in KEYS)


def _side_by_side(predicted: Entry | None, measured: Entry) -> dict[str, Any]:
    beside: dict[str, Any] = dict(measured)
    for name in COMPARED:
        if name in measured:
            beside[name] = _errors(None if predicted is None else predicted[name], measured[name])
    return beside


def _errors(predicted: Any, measured: Any) -> dict[str, float | None]:
    known = predicted is not None and measured != 0
    return {
        "predicted": predicted,
        "measured": measured,
        "error": (predicted - measured) / measured if known and predicted is not None else None,
    }


def one_trace(
    scenario: Scenario,
    calibration: Calibration | None,
    algorithm: str | None,
    nbytes: int | None,
    engine: str | None = None,
) -> Trace:
    """What is simulated of one of the scenario's algorithms: the last at the largest size, unless said.

    A training's first steps where the scenario asks for no collective. Raises InputError for a name not in it.
    """
    comparison, jobs, cluster = scenario.collective, predictable(scenario.trainings), scenario.cluster
    if comparison is None:
        job = _named(algorithm, {job.sync_name: job for job in jobs}, scenario)
        job = _decided(job, cluster, calibration)
        return simcomm.train(job, cluster, calibration=calibration, engine=engine, trouble=scenario.trouble)
    named = _named(algorithm, {candidate.label: candidate for candidate in comparison.algorithms}, scenario)
    request = comparison.request(named, nbytes or max(comparison.sizes), cluster.world_size)
    request = resolve_auto(request, cluster, calibration)
    return simcomm.run(request, cluster, calibration=calibration, engine=engine, trouble=scenario.trouble)


def _named(name: str | None, candidates: dict[str, Any], scenario: Scenario) -> Any:
    """The last candidate, or the one with this label; its name without parameters will do where no other has it.

    ``my.py:fancy`` names the algorithm as the scenario does.
    """
    name = name and name.rpartition(".py:")[2]
    known = ", ".join(candidates) or "none that can be predicted"
    fitting = [label for label in candidates if name in (None, label)]
    fitting = fitting or [label for label in candidates if name == label.partition("[")[0]]
    if not fitting or (name is not None and len(fitting) > 1):
        problem = "more than one algorithm" if fitting else "no algorithm"
        raise InputError(f"{scenario.path}: {problem} {name or ''!r} in it; there are {known}")
    return candidates[fitting[-1]]
