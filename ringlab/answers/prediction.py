"""``Prediction``: a scenario simulated, with its what-ifs."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, cast

import simcomm
from collectives.declaration import NCCL, Algorithm
from collectives.records.calibration import Calibration
from collectives.records.limits import find_limits
from collectives.records.trace import Trace
from collectives.request import Request
from collectives.schedule.symbolic_build import message_count
from collectives.units import format_size
from collectives.workload import Training
from ringlab.answers.conclusions import MOST_SENTENCES, conclude
from ringlab.answers.figures import (
    ClusterFigures,
    CollectiveFigures,
    Number,
    TrainingFigures,
    collective_figures,
    training_figures,
)
from ringlab.answers.repeated_runs import TroubleFigures, repeat
from ringlab.answers.scenario_answer import ScenarioAnswer
from ringlab.answers.workload import predictable, resolve_requests, resolve_training
from scenarios import Scenario
from simcomm.cluster.cluster import Cluster
from simcomm.model.trouble import NO_TROUBLE, Trouble
from simcomm.schedules import compact_schedule
from simcomm.training import STEPS

if TYPE_CHECKING:
    from simcomm.nccl.clusters import NcclCluster

MOST_RECORDED = 200_000  # messages of all repetitions that are kept to see who waited for whom; each takes a kilobyte

MOST_LOOKED_AT = 20_000  # messages of a run that is simulated once more to see what limits it: well under a second


@dataclass(frozen=True, kw_only=True, repr=False)
class Prediction(ScenarioAnswer[Number]):
    """What ``predict`` found: times in virtual seconds, None of a run that never ends."""

    kind: ClassVar[str] = "prediction"

    limits: str = ""  # what limits the quickest run on the scenario's own cluster; empty where it is not known

    def to_dict(self) -> dict[str, Any]:
        """Return what the command writes as JSON."""
        return super().to_dict() | {"limits": self.limits}


def predict(scenario: Scenario, calibration: Calibration | None = None, engine: str | None = None) -> Prediction:
    """Simulate a scenario and its what-ifs.

    ``engine`` is "simpy", "compiled", or None for whichever suits the number of messages. Raises InputError where a
    calibration is needed and missing.
    """
    simulator = _Simulator(scenario, calibration, engine)
    own = simulator.figures(scenario.title, scenario.cluster, scenario.trouble)
    what_ifs = tuple(simulator.figures(other.title, other.cluster, other.trouble) for other in scenario.what_ifs)
    answer = Prediction(
        title=scenario.title,
        file=str(scenario.path),
        cluster=scenario.cluster.title,
        collectives=own.collectives,
        training=own.training,
        what_ifs=what_ifs,
    )
    concluded = conclude(answer, scenario, _grounds(scenario))
    limits = simulator.limits(own)
    if limits and len(concluded.conclusions) + bool(concluded.explanations) >= MOST_SENTENCES:
        concluded = concluded._replace(explanations=(limits, *concluded.explanations))
    return replace(answer, **concluded._asdict(), limits=limits)


def _grounds(scenario: Scenario) -> list[str]:
    """Return of each cluster that NCCL joins what its predictions stand on."""
    clusters = {scenario.cluster.title: scenario.cluster} | {one.title: one.cluster for one in scenario.what_ifs}
    if not any(cluster.transport is not None and cluster.transport.name == NCCL for cluster in clusters.values()):
        return []
    from ringlab.answers.nccl_figures import grounds

    return [f"{title}: {'; '.join(known)}." for title, cluster in clusters.items() if (known := grounds(cluster))]


@dataclass(frozen=True)
class _Simulator:
    """The collectives and trainings of a scenario, simulated on one cluster after the other."""

    scenario: Scenario
    calibration: Calibration | None
    engine: str | None

    def figures(self, title: str, cluster: Cluster, trouble: Trouble) -> ClusterFigures[Number]:
        requests = resolve_requests(self.scenario.collective, cluster, self.calibration)
        trainings = [
            resolve_training(training, cluster, self.calibration) for training in predictable(self.scenario.trainings)
        ]
        return ClusterFigures(
            title=title,
            cluster=cluster.title,
            collectives=tuple(self._collective(request, cluster, trouble) for request in requests),
            training=tuple(self._training(training, cluster, trouble) for training in trainings),
        )

    def limits(self, own: ClusterFigures[Number]) -> str:
        """Return what limits the quickest collective at the largest size, as the player and the report say it.

        It is simulated once more for its messages, unless these are many; empty then, and where nothing is known.
        """
        requests = resolve_requests(self.scenario.collective, self.scenario.cluster, self.calibration)
        largest = max((one.bytes for one in own.collectives), default=0)
        ended = [
            (one.time_s, index)
            for index, one in enumerate(own.collectives)
            if one.time_s is not None and one.bytes == largest and not requests[index].algorithm.is_nccl
        ]
        if not ended:
            return ""
        request, cluster = requests[min(ended)[1]], self.scenario.cluster
        if _message_count(request.algorithm, cluster, request.root) > MOST_LOOKED_AT:
            return ""
        trouble = self.scenario.trouble
        trace = simcomm.run(request, cluster, calibration=self.calibration, engine=self.engine, trouble=trouble)
        found = find_limits(trace)
        if found.kind == "unknown":
            return ""
        return f"What limits {request.algorithm.label}, {format_size(largest)}: {found.heading}. {found.sentence}"

    def _collective(self, request: Request, cluster: Cluster, trouble: Trouble) -> CollectiveFigures[Number]:
        if request.algorithm.is_nccl:
            from ringlab.answers.nccl_figures import nccl_figures  # other scenarios do without its model

            return nccl_figures(request, cast("NcclCluster", cluster))
        simulate = partial(simcomm.run, request, cluster, calibration=self.calibration, engine=self.engine)
        if trouble == NO_TROUBLE:
            return collective_figures(simulate(record=False))
        messages = _message_count(request.algorithm, cluster, request.root)
        trace, about = _repeat(trouble, cluster, simulate, lambda trace: trace.elapsed, messages)
        if trouble.slows_ranks and cluster.transport is not None and cluster.transport.gamma == 0:
            about = replace(about, computing="free")
        return collective_figures(trace, about)

    def _training(self, training: Training, cluster: Cluster, trouble: Trouble) -> TrainingFigures[Number]:
        simulate = partial(simcomm.train, training, cluster, calibration=self.calibration, engine=self.engine)
        if trouble == NO_TROUBLE:
            return training_figures(simulate(record=False), training)
        assert training.gradient_sync is not None
        messages = STEPS * _message_count(training.gradient_sync, cluster)
        trace, about = _repeat(trouble, cluster, simulate, partial(_step_seconds, training), messages)
        return training_figures(trace, training, about)


def _repeat(
    trouble: Trouble,
    cluster: Cluster,
    simulate: Callable[..., Trace],
    seconds: Callable[[Trace], float],
    messages: int,
) -> tuple[Trace, TroubleFigures]:
    return repeat(trouble, cluster, simulate, seconds, record=messages * trouble.runs <= MOST_RECORDED)


def _step_seconds(training: Training, trace: Trace) -> float:
    seconds = training_figures(trace, training).step_s
    assert seconds is not None, "a run that ended has a time"
    return seconds


def _message_count(algorithm: Algorithm, cluster: Cluster, root: int = 0) -> int:
    return message_count(compact_schedule(algorithm, cluster.world_size, root))
