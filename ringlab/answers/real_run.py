"""``RunAnswer``: a scenario run on real processes of this machine."""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from collectives.records.calibration import Calibration
from collectives.records.trace import Trace
from ringlab.answers.conclusions import conclude
from ringlab.answers.figures import Number, collective_figures, training_figures
from ringlab.answers.progress import NoProgress, Progress
from ringlab.answers.scenario_answer import ScenarioAnswer
from ringlab.answers.workload import check_programs, resolve_requests, resolve_training
from scenarios import Scenario


@dataclass(frozen=True, kw_only=True, repr=False)
class RunAnswer(ScenarioAnswer[Number]):
    """What ``run`` measured: times in seconds of this machine.

    ``traces`` are of the algorithms at the largest size, else of the last training; they are no part of the JSON.
    """

    kind: ClassVar[str] = "measurement"

    is_here: bool = True  # whether the scenario's cluster is this machine
    traces: tuple[Trace, ...] = field(default=(), compare=False)

    @property
    def trace(self) -> Trace | None:
        """The trace of the last algorithm at the largest size, else of the last training."""
        return self.traces[-1] if self.traces else None

    @property
    def place(self) -> str:
        """Where the figures are from: this machine, whatever the scenario's cluster is."""
        return self.cluster if self.is_here else "this machine"

    def to_dict(self) -> dict[str, Any]:
        found = super().to_dict()
        del found["what_if"]  # is predicted only
        if not self.is_here:
            found["emulated"] = False
        return found


def run(
    scenario: Scenario,
    calibration: Calibration | None = None,
    *,
    backend: str = "gloo",
    timeout: float = 600.0,
    progress: Progress | None = None,
) -> RunAnswer:
    """Run a scenario on real processes of this machine; each run ends after ``timeout`` seconds.

    ``auto`` is resolved before, as ``predict`` does with the same calibration. Raises RunFailed, and ProgramError
    before anything is measured.
    """
    import realcomm  # torch comes with it

    progress = NoProgress() if progress is None else progress
    requests = resolve_requests(scenario.collective, scenario.cluster, calibration)
    trainings = [resolve_training(training, scenario.cluster, calibration) for training in scenario.trainings]
    check_programs(scenario, requests, trainings)
    traces, collectives, training = list[Trace](), [], []
    for request in requests:
        with progress.task(f"measuring {request.algorithm.full_name}, {request.nbytes} bytes") as tick:
            trace = realcomm.run(request, scenario.cluster, backend=backend, timeout=timeout, progress=tick)
        traces.append(trace)
        collectives.append(collective_figures(trace))
    for job in trainings:
        with progress.task(f"training with {job.sync_name}") as tick:
            trace = realcomm.train(job, scenario.cluster, backend=backend, timeout=timeout, progress=tick)
        traces = traces if collectives else [trace]
        training.append(training_figures(trace, job))
    answer = RunAnswer(
        title=scenario.title,
        file=str(scenario.path),
        cluster=scenario.cluster.title,
        collectives=tuple(collectives),
        training=tuple(training),
        is_here=scenario.cluster.is_here,
        traces=_of_the_largest(traces),
    )
    return replace(answer, **conclude(answer, scenario)._asdict())


def _of_the_largest(traces: list[Trace]) -> tuple[Trace, ...]:
    """Return the traces of the largest size."""
    most = max((trace.facts.get("nbytes", 0.0) for trace in traces), default=0.0)
    return tuple(trace for trace in traces if trace.facts.get("nbytes", 0.0) == most)
