"""``Prediction``: a scenario simulated, with its what-ifs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast

import simcomm
from collectives.declaration import NCCL
from collectives.records.calibration import Calibration
from collectives.records.limits import find_limits
from collectives.records.trace import Trace
from collectives.request import Request
from collectives.schedule.cyclic import CyclicSchedule
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
from ringlab.answers.progress import Progress, Tick, computing
from ringlab.answers.repeated_runs import TroubleFigures, repeat
from ringlab.answers.scenario_answer import ScenarioAnswer
from ringlab.answers.workload import predictable, resolve_requests, resolve_training
from scenarios import Scenario
from simcomm.cluster.cluster import Cluster
from simcomm.compiled.planning.engine_input import check_pairs
from simcomm.expected_time import expected_seconds
from simcomm.model.trouble import NO_TROUBLE, Trouble
from simcomm.schedules import compact_schedule
from simcomm.training import STEPS

if TYPE_CHECKING:
    from simcomm.nccl.clusters import NcclCluster

Figures = CollectiveFigures[Number] | TrainingFigures[Number]

WORTH_SAYING_S = 3.0  # expected seconds that are announced
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


def predict(
    scenario: Scenario,
    calibration: Calibration | None = None,
    engine: str | None = None,
    progress: Progress | None = None,
) -> Prediction:
    """Simulate a scenario and its what-ifs; an interrupt ends it, and what is done by then is the answer.

    ``engine`` is "simpy", "compiled", or None for whichever suits the number of messages. ``progress`` is told how
    many messages there are to simulate and how long that should take, where it is more than a moment. Raises
    InputError where a calibration is needed and missing, KeyboardInterrupt where nothing is done yet.
    """
    simulator = _Simulator(scenario, calibration, engine)
    with computing(progress, f"simulating {scenario.title}") as tick:
        rows = simulator.rows(tick)
        _announce(rows, progress)
        found, interrupted = _simulate(simulator, rows, tick)
        own, *others = _by_cluster(scenario, found)
        answer = Prediction(
            title=scenario.title,
            file=str(scenario.path),
            cluster=scenario.cluster.title,
            collectives=own.collectives,
            training=own.training,
            what_ifs=tuple(other for other in others if not interrupted or other.collectives or other.training),
            interrupted=interrupted,
        )
        if interrupted:
            return replace(answer, conclusions=(f"Stopped: {len(found)} of {len(rows)} rows are simulated.",))
        concluded = conclude(answer, scenario, _grounds(scenario))
        limits = simulator.limits(own, [row.asked for row in rows if row.place == 0 and isinstance(row.asked, Request)])
        if limits and len(concluded.conclusions) + bool(concluded.explanations) >= MOST_SENTENCES:
            concluded = concluded._replace(explanations=(limits, *concluded.explanations))
        return replace(answer, **concluded._asdict(), limits=limits)


def _announce(rows: "Sequence[_Row]", progress: Progress | None) -> None:
    """Say how many messages there are to simulate, and how long that should take, where it is more than a moment."""
    seconds = sum(row.seconds for row in rows)
    if progress is not None and seconds > WORTH_SAYING_S:
        messages = sum(row.messages for row in rows)
        progress.note(f"{messages:,} messages to simulate in {len(rows)} rows: about {seconds:.0f} s")


def _simulate(simulator: "_Simulator", rows: "Sequence[_Row]", tick: Tick) -> tuple[list[tuple["_Row", Figures]], bool]:
    """Return the figures of all rows or, after an interrupt, of those that were done, and whether there was one."""
    found: list[tuple[_Row, Figures]] = []
    total, done = sum(row.messages for row in rows), 0

    def on_run() -> None:
        nonlocal done
        done += row.messages // row.runs
        tick(0, done, total, f"messages, {row.name}")

    try:
        for row in rows:
            found.append((row, simulator.figures(row, on_run)))
    except KeyboardInterrupt:
        if not found:
            raise
        return found, True
    return found, False


def _by_cluster(scenario: Scenario, found: "Sequence[tuple[_Row, Figures]]") -> list[ClusterFigures[Number]]:
    """Return the figures of the scenario's own cluster and of its what-ifs."""
    places = [(scenario.title, scenario.cluster), *((other.title, other.cluster) for other in scenario.what_ifs)]
    return [
        ClusterFigures(
            title=title,
            cluster=cluster.title,
            collectives=tuple(one for row, one in found if row.place == place and isinstance(one, CollectiveFigures)),
            training=tuple(one for row, one in found if row.place == place and isinstance(one, TrainingFigures)),
        )
        for place, (title, cluster) in enumerate(places)
    ]


def _grounds(scenario: Scenario) -> list[str]:
    """Return of each cluster that NCCL joins what its predictions stand on."""
    clusters = {scenario.cluster.title: scenario.cluster} | {one.title: one.cluster for one in scenario.what_ifs}
    if not any(cluster.transport is not None and cluster.transport.name == NCCL for cluster in clusters.values()):
        return []
    from ringlab.answers.nccl_figures import grounds

    return [f"{title}: {'; '.join(known)}." for title, cluster in clusters.items() if (known := grounds(cluster))]


class _Row(NamedTuple):
    """A row of the answer that is to be simulated."""

    place: int  # 0 of the scenario's own cluster, then of its what-ifs
    asked: Request | Training
    cluster: Cluster
    trouble: Trouble
    messages: int  # of all repetitions
    seconds: float  # that simulating them should take

    @property
    def name(self) -> str:
        """What is simulated."""
        return self.asked.algorithm.full_name if isinstance(self.asked, Request) else f"training/{self.asked.sync_name}"

    @property
    def runs(self) -> int:
        """How often it is simulated."""
        return self.trouble.runs


@dataclass(frozen=True)
class _Simulator:
    """The collectives and trainings of a scenario, simulated on one cluster after the other."""

    scenario: Scenario
    calibration: Calibration | None
    engine: str | None

    def rows(self, tick: Tick) -> list[_Row]:
        """Return what is to be simulated, ``auto`` resolved."""
        places = [(self.scenario.cluster, self.scenario.trouble)]
        places += [(other.cluster, other.trouble) for other in self.scenario.what_ifs]
        rows = []
        for place, (cluster, trouble) in enumerate(places):
            tick(0, 0, 0, f"preparing {cluster.title}")
            trainings = predictable(self.scenario.trainings)
            asked: list[Request | Training] = [
                *resolve_requests(self.scenario.collective, cluster, self.calibration),
                *(resolve_training(training, cluster, self.calibration) for training in trainings),
            ]
            rows += [_Row(place, one, cluster, trouble, *self._expect(one, cluster, trouble)) for one in asked]
        return rows

    def _expect(self, asked: Request | Training, cluster: Cluster, trouble: Trouble) -> tuple[int, float]:
        """Return how many messages are to be simulated for a row, and about how many seconds that takes."""
        if isinstance(asked, Request):
            algorithm, root, steps = asked.algorithm, asked.root, 1
        else:
            assert asked.gradient_sync is not None
            algorithm, root, steps = asked.gradient_sync, 0, STEPS
        if algorithm.is_nccl:
            return 0, 0.0
        schedule = compact_schedule(algorithm, cluster.world_size, root)
        if isinstance(schedule, CyclicSchedule):
            check_pairs(schedule)  # what is too large is refused before anything else is prepared
        messages = steps * message_count(schedule) * trouble.runs
        record = trouble != NO_TROUBLE and messages <= MOST_RECORDED
        return messages, steps * expected_seconds(schedule, self.engine, trouble, record=record)

    def figures(self, row: _Row, on_run: Callable[[], None]) -> Figures:
        """Simulate a row; ``on_run`` is called after each repetition."""
        if isinstance(row.asked, Request):
            return self._collective(row.asked, row, on_run)
        return self._training(row.asked, row, on_run)

    def limits(self, own: ClusterFigures[Number], requests: Sequence[Request]) -> str:
        """Return what limits the quickest collective at the largest size, as the player and the report say it.

        It is simulated once more for its messages, unless these are many; empty then, and where nothing is known.
        ``requests`` are what was simulated on the scenario's own cluster.
        """
        largest = max((one.bytes for one in own.collectives), default=0)
        ended = [
            (one.time_s, index)
            for index, one in enumerate(own.collectives)
            if one.time_s is not None and one.bytes == largest and not requests[index].algorithm.is_nccl
        ]
        if not ended:
            return ""
        request, cluster = requests[min(ended)[1]], self.scenario.cluster
        if message_count(compact_schedule(request.algorithm, cluster.world_size, request.root)) > MOST_LOOKED_AT:
            return ""
        trouble = self.scenario.trouble
        trace = simcomm.run(request, cluster, calibration=self.calibration, engine=self.engine, trouble=trouble)
        found = find_limits(trace)
        if found.kind == "unknown":
            return ""
        return f"What limits {request.algorithm.label}, {format_size(largest)}: {found.heading}. {found.sentence}"

    def _collective(self, request: Request, row: _Row, on_run: Callable[[], None]) -> CollectiveFigures[Number]:
        cluster, trouble = row.cluster, row.trouble
        if request.algorithm.is_nccl:
            from ringlab.answers.nccl_figures import nccl_figures  # other scenarios do without its model

            return nccl_figures(request, cast("NcclCluster", cluster))
        simulate = partial(simcomm.run, request, cluster, calibration=self.calibration, engine=self.engine)
        if trouble == NO_TROUBLE:
            trace = simulate(record=False)
            on_run()
            return collective_figures(trace)
        trace, about = _repeat(row, simulate, lambda trace: trace.elapsed, on_run)
        if trouble.slows_ranks and cluster.transport is not None and cluster.transport.gamma == 0:
            about = replace(about, computing="free")
        return collective_figures(trace, about)

    def _training(self, training: Training, row: _Row, on_run: Callable[[], None]) -> TrainingFigures[Number]:
        simulate = partial(simcomm.train, training, row.cluster, calibration=self.calibration, engine=self.engine)
        if row.trouble == NO_TROUBLE:
            trace = simulate(record=False)
            on_run()
            return training_figures(trace, training)
        trace, about = _repeat(row, simulate, partial(_step_seconds, training), on_run)
        return training_figures(trace, training, about)


def _repeat(
    row: _Row, simulate: Callable[..., Trace], seconds: Callable[[Trace], float], on_run: Callable[[], None]
) -> tuple[Trace, TroubleFigures]:
    record = row.messages <= MOST_RECORDED
    return repeat(row.trouble, row.cluster, simulate, seconds, record=record, on_run=on_run)


def _step_seconds(training: Training, trace: Trace) -> float:
    seconds = training_figures(trace, training).step_s
    assert seconds is not None, "a run that ended has a time"
    return seconds
