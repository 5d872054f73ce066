"""``Prediction``: a scenario simulated, with its what-ifs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import simcomm
from collectives.calibration.calibration import Calibration
from collectives.errors import TooLarge
from collectives.records.limits import find_limits
from collectives.records.summary import TRAINING_FIGURES
from collectives.records.trace import Trace
from collectives.records.waits import Record
from collectives.request import Request
from collectives.units import format_size
from collectives.workload import Training
from ringlab.answers.conclusions import Conclusions, conclude
from ringlab.answers.figures import (
    ClusterFigures,
    CollectiveFigures,
    Number,
    TrainingFigures,
    collective_figures,
    training_figures,
)
from ringlab.answers.prediction_rows import Row, Work, count_work, in_order, is_auto
from ringlab.answers.scenario_answer import ScenarioAnswer
from ringlab.shared.progress import Progress, Tick, computing
from ringlab.shared.workload import predictable, resolve_requests, resolve_training
from ringlab.table import MOST_SENTENCES, keep_few
from scenarios import Scenario
from simcomm.cluster.cluster import Cluster
from simcomm.cluster.paths import keeping_paths
from simcomm.model.trouble import NO_TROUBLE
from simcomm.repetition import TroubleFigures, repeat
from simcomm.schedules import compact_schedule
from simcomm.time_models.choice import time_model
from simcomm.time_models.options import SimulationOptions
from simcomm.uncertainty import combine, disagreement, of_emulated

Figures = CollectiveFigures[Number] | TrainingFigures[Number]

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
    in_turns: bool = False,
) -> Prediction:
    """Simulate a scenario and its what-ifs; an interrupt ends it, and what is done by then is the answer.

    What is too large to be simulated is left out, and named below the tables, unless nothing else is asked for.

    ``engine`` is as in ``simcomm.run``. ``progress`` is told how many of all messages are simulated. A calibration has
    not aged where the run was ``in_turns`` with it. Raises InputError where a calibration is needed and missing,
    KeyboardInterrupt where nothing is done yet.
    """
    age_s = calibration.age_s if calibration is not None and not in_turns else 0.0
    simulator = _Simulator(scenario, calibration, engine)
    with computing(progress, f"simulating {scenario.title}") as tick, keeping_paths():
        rows = simulator.rows(tick)
        found, interrupted = _simulate(simulator, rows, tick)
        if simulator.refused and not found:
            raise simulator.refused[0]
        own, *others = _by_cluster(scenario, found)
        if not interrupted:
            own = _with_uncertainty(scenario, calibration, engine, own, age_s)
        answer = Prediction(
            title=scenario.title,
            file=str(scenario.path),
            cluster=scenario.cluster.title,
            collectives=own.collectives,
            training=own.training,
            what_ifs=tuple(other for other in others if not interrupted or other.collectives or other.training),
            interrupted=interrupted,
        )
        try:
            if not interrupted:
                requests = [row.asked for row, _ in found if row.place == 0 and isinstance(row.asked, Request)]
                return _conclude(answer, scenario, simulator.limits(own, requests), simulator.refused)
        except KeyboardInterrupt:
            pass
        stopped = f"Stopped: {len(found)} of {len(rows)} rows are simulated."
        return replace(answer, interrupted=True, conclusions=(stopped,))


def _conclude(answer: Prediction, scenario: Scenario, limits: str, refused: Sequence[TooLarge]) -> Prediction:
    """Return the answer with the sentences below its tables, of which ``limits`` may be one too many to be shown."""
    left_out = "; ".join(dict.fromkeys(map(str, refused)))
    concluded = conclude(answer, scenario, [*([f"Left out: {left_out}."] if left_out else []), *_grounds(scenario)])
    if limits and len(concluded.conclusions) + bool(concluded.explanations) >= MOST_SENTENCES:
        concluded = Conclusions(*keep_few(concluded.conclusions, (limits, *concluded.explanations)))
    return replace(answer, **concluded._asdict(), limits=limits)


def _with_uncertainty(
    scenario: Scenario,
    calibration: Calibration | None,
    engine: str | None,
    own: ClusterFigures[Number],
    age_s: float,
) -> ClusterFigures[Number]:
    """Return the figures of this machine with their uncertainties: predicted from each part of the calibration too.

    Of an emulated cluster they are predicted once more with slower cores.
    """
    others = time_model(scenario.cluster, calibration).alternatives()
    alone = replace(scenario, what_ifs=())
    parts = [_figures(alone, part, engine) for part in others.parts]
    slower = None if others.slower is None else _figures(alone, others.slower, engine)

    def stated(kind: str, index: int, names: Sequence[str]) -> dict[str, float] | None:
        row, *of_parts = (getattr(each, kind)[index] for each in (own, *parts))
        on_slower = None if slower is None else getattr(slower, kind)[index]
        return _uncertainty(row, of_parts, on_slower, age_s, names)

    return replace(
        own,
        collectives=tuple(
            replace(one, uncertainty=stated("collectives", index, ["time_s"]))
            for index, one in enumerate(own.collectives)
        ),
        training=tuple(
            replace(one, uncertainty=stated("training", index, TRAINING_FIGURES))
            for index, one in enumerate(own.training)
        ),
    )


def _figures(scenario: Scenario, calibration: Calibration, engine: str | None) -> ClusterFigures[Number]:
    """Return the figures of the scenario's own cluster from one part of a calibration."""
    simulator = _Simulator(scenario, calibration, engine)
    rows = simulator.rows(lambda *_: None)
    return _by_cluster(scenario, [(row, simulator.figures(row, lambda: None)) for row in rows])[0]


def _uncertainty(
    own: Figures, of_parts: Sequence[Figures], slower: Figures | None, age_s: float, names: Sequence[str]
) -> dict[str, float] | None:
    """Return the uncertainty of each figure of a row from what each part predicts; None without parts.

    Of an emulated cluster ``slower`` is the prediction with slower cores.
    """
    found = dict[str, float | None]()
    for name in names:
        values = [getattr(part, name) for part in of_parts]
        if slower is not None:
            found[name] = of_emulated(getattr(own, name) or 0.0, values, getattr(slower, name), age_s)
        else:
            found[name] = combine(disagreement(values), age_s)
    return {name: share for name, share in found.items() if share is not None} or None


def _simulate(simulator: "_Simulator", rows: Sequence[Row], tick: Tick) -> tuple[list[tuple[Row, Figures]], bool]:
    """Return the figures of all rows or, after an interrupt, of those that were done, and whether there was one."""
    found: dict[int, tuple[Row, Figures]] = {}
    total, done = sum(row.messages for row in rows), 0

    def on_run() -> None:
        nonlocal done
        done += row.messages // row.runs
        tick(0, done, total, f"messages, {row.name}")

    interrupted = False
    try:
        for index in in_order(rows):
            row = rows[index]
            tick(0, done, total, f"messages, {row.name}")
            before = done
            figures = simulator.try_row(row, on_run)
            done = before + row.messages  # also where fewer runs than asked for were enough
            if figures is not None:
                found[index] = row, figures
    except KeyboardInterrupt:
        if not found:
            raise
        interrupted = True
    return [found[index] for index in sorted(found)], interrupted


def _by_cluster(scenario: Scenario, found: Sequence[tuple[Row, Figures]]) -> list[ClusterFigures[Number]]:
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
    algorithms = scenario.collective.algorithms if scenario.collective else ()
    titles: dict[str, list[str]] = {}
    for title, one in clusters.items():
        titles.setdefault("; ".join(time_model(one).grounds(algorithms)), []).append(title)
    return [f"{' and '.join(alike)}: {notes}." for notes, alike in titles.items() if notes]


@dataclass(frozen=True)
class _Simulator:
    """The collectives and trainings of a scenario, simulated on one cluster after the other."""

    scenario: Scenario
    calibration: Calibration | None
    engine: str | None
    known: dict[tuple[int, Request | Training], Figures] = field(default_factory=dict)  # of rows that were simulated
    chosen: dict[tuple[int, Training], Training] = field(default_factory=dict)  # ``auto`` resolved, by place
    refused: list[TooLarge] = field(default_factory=list)  # what is left out

    def rows(self, tick: Tick) -> list[Row]:
        """Return what is to be simulated, ``auto`` resolved, without what is refused; a row again has no messages."""
        places = [(self.scenario.cluster, self.scenario.trouble)]
        places += [(other.cluster, other.trouble) for other in self.scenario.what_ifs]
        rows: list[Row] = []
        for place, (cluster, trouble) in enumerate(places):
            tick(0, 0, 0, f"preparing {cluster.title}")
            trainings = self._trainings(cluster)
            model = time_model(cluster, self.calibration)
            for training in trainings:
                model.check_training(training, SimulationOptions(self._engine(training, cluster), trouble))
            first_alike = next(other for other, (one, _) in enumerate(places) if one == cluster)
            asked: list[Request | Training] = [
                *resolve_requests(self.scenario.collective, cluster, self.calibration),
                *(self._resolve(training, first_alike, cluster) for training in trainings),
            ]
            seen: set[Request | Training] = set()
            for one in asked:
                try:
                    work = Work() if one in seen else count_work(one, model, self.engine, trouble)
                except TooLarge as error:
                    self._refuse(one, error)
                    continue
                seen.add(one)
                rows.append(Row(place, one, cluster, trouble, work))
        return rows

    def _refuse(self, asked: Request | Training, error: TooLarge) -> None:
        """Note why a row is left out, and what else may do where the model chose its algorithm."""
        hint = "; or name an algorithm in place of auto" if is_auto(asked) else ""
        self.refused.append(TooLarge(f"{error}{hint}"))

    def _resolve(self, training: Training, place: int, cluster: Cluster) -> Training:
        """Return the training with the algorithm that the model chooses at a place, which is chosen once."""
        key = place, training
        if key not in self.chosen:
            self.chosen[key] = resolve_training(training, cluster, self.calibration)
        return self.chosen[key]

    def _trainings(self, cluster: Cluster) -> Sequence[Training]:
        """Return the trainings to simulate: torch's own sync only where its overlap was measured, on this machine."""
        knows_ddp = time_model(cluster, self.calibration).knows_ddp()
        return self.scenario.trainings if knows_ddp else predictable(self.scenario.trainings)

    def _engine(self, training: Training, cluster: Cluster) -> str | None:
        """Return the engine for a training: none for a sync that is predicted as a whole, unless it is torch's own."""
        is_whole = training.gradient_sync is not None and time_model(cluster).is_whole(training)
        return None if is_whole else self.engine

    def figures(self, row: Row, on_run: Callable[[], None]) -> Figures:
        """Simulate a row, unless it is known; ``on_run`` is called after each repetition."""
        key = row.place, row.asked
        if key not in self.known:
            simulate = self._collective if isinstance(row.asked, Request) else self._training
            self.known[key] = simulate(row.asked, row, on_run)  # type: ignore[arg-type]
        return self.known[key]

    def try_row(self, row: Row, on_run: Callable[[], None]) -> Figures | None:
        """Simulate a row as ``figures`` does; None where it is found out to be too large."""
        try:
            return self.figures(row, on_run)
        except TooLarge as error:
            self._refuse(row.asked, error)
            return None

    def limits(self, own: ClusterFigures[Number], requests: Sequence[Request]) -> str:
        """Return what limits the quickest collective at the largest size, as the player and the report say it.

        It is simulated once more for its messages, unless these are many; empty then, and where nothing is known.
        ``requests`` are what was simulated on the scenario's own cluster.
        """
        largest, model = max((one.bytes for one in own.collectives), default=0), time_model(self.scenario.cluster)
        ended = [
            (one.time_s, index)
            for index, one in enumerate(own.collectives)
            if one.time_s is not None and one.bytes == largest and model.carried(requests[index]) is not None
        ]
        if not ended:
            return "" if own.collectives else self._training_limits(own)
        request, cluster = requests[min(ended)[1]], self.scenario.cluster
        if compact_schedule(request.algorithm, cluster.world_size, request.root).messages > MOST_LOOKED_AT:
            return ""
        trouble = self.scenario.trouble
        trace = simcomm.run(request, cluster, calibration=self.calibration, engine=self.engine, trouble=trouble)
        found = find_limits(trace)
        if found.kind == "unknown":
            return ""
        return f"What limits {request.algorithm.label}, {format_size(largest)}: {found.heading}. {found.sentence}"

    def _training_limits(self, own: ClusterFigures[Number]) -> str:
        """Return what limits the quickest training, as ``limits`` does for collectives."""
        cluster = self.scenario.cluster
        jobs = self._trainings(cluster)
        ended = [(one.step_s, index) for index, one in enumerate(own.training) if one.step_s is not None]
        if not ended:
            return ""
        job = self._resolve(jobs[min(ended)[1]], 0, cluster)
        carried, is_whole = time_model(cluster).carried(job), time_model(cluster).is_whole(job)
        if carried is None or is_whole:
            return ""
        if compact_schedule(carried.algorithm, cluster.world_size).messages > MOST_LOOKED_AT:
            return ""
        simulate = partial(simcomm.train, job, cluster, calibration=self.calibration, engine=self.engine)
        found = find_limits(simulate(steps=1, trouble=self.scenario.trouble))
        if found.kind == "unknown":
            return ""
        return f"What limits training with {job.sync_name}: {found.heading}. {found.sentence}"

    def _collective(self, request: Request, row: Row, on_run: Callable[[], None]) -> CollectiveFigures[Number]:
        cluster, trouble = row.cluster, row.trouble
        simulate = partial(simcomm.run, request, cluster, calibration=self.calibration, engine=self.engine)
        if trouble == NO_TROUBLE:
            trace = simulate(record=False)
            on_run()
            return collective_figures(trace)
        trace, about = _repeat(row, simulate, lambda trace: trace.elapsed, on_run)
        if trouble.slows_ranks and cluster.transport is not None and cluster.transport.gamma == 0:
            about = replace(about, computing="free")
        return collective_figures(trace, about)

    def _training(self, training: Training, row: Row, on_run: Callable[[], None]) -> TrainingFigures[Number]:
        engine = self._engine(training, row.cluster)
        simulate = partial(simcomm.train, training, row.cluster, calibration=self.calibration, engine=engine)
        if row.trouble == NO_TROUBLE:
            trace = simulate(record=False)
            on_run()
            return training_figures(trace, training)
        trace, about = _repeat(row, simulate, partial(_step_seconds, training), on_run, time_model(row.cluster).steps)
        return training_figures(trace, training, about)


def _repeat(
    row: Row,
    simulate: Callable[..., Trace],
    seconds: Callable[[Trace], float],
    on_run: Callable[[], None],
    steps: int = 1,
) -> tuple[Trace, TroubleFigures]:
    record = Record.WAITS if row.messages <= MOST_RECORDED else Record.BRIEF_WAITS
    return repeat(row.trouble, row.cluster, simulate, seconds, record=record, steps=steps, on_run=on_run)


def _step_seconds(training: Training, trace: Trace) -> float:
    seconds = training_figures(trace, training).step_s
    assert seconds is not None, "a run that ended has a time"
    return seconds
