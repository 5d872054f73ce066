"""Simulates the collectives and training runs of a scenario and its what-ifs, and draws conclusions from the times."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import ClassVar, NamedTuple

from collectives.budget import Gigabyte, allowed
from collectives.call import CollectiveCall
from collectives.errors import InputError, TooLarge
from collectives.records.calibration import Calibration
from collectives.records.limits import find_limits
from collectives.records.trace import Trace
from collectives.records.waits import Record
from collectives.training.workload import Training
from collectives.units import format_size
from ringlab.session import Session
from ringlab.shared.conclusions import Conclusions, conclude
from ringlab.shared.figures import (
    TRAINING_FIGURES,
    ClusterFigures,
    CollectiveFigures,
    Number,
    TrainingFigures,
    collective_figures,
    training_figures,
)
from ringlab.shared.progress import Tick, keeping
from ringlab.shared.scenario_answer import ScenarioAnswer
from ringlab.shared.workload import (
    MOST_LOOKED_AT,
    WorkCount,
    count_work,
    is_auto,
    predictable,
    resolve_calls,
    resolve_training,
)
from ringlab.table import MOST_SENTENCES, keep_few
from scenarios import LoadedScenario
from simcomm.cluster.cluster import Cluster
from simcomm.cluster.paths import keeping_paths
from simcomm.model.faults import NO_FAULTS, Faults
from simcomm.performance_models.options import SimulationOptions, check_engine
from simcomm.performance_models.performance_model import PerformanceModel, performance_model
from simcomm.repetition import FaultFigures, repeat
from simcomm.schedules import compact_schedule
from simcomm.simulate import simulate
from simcomm.uncertainty import combine, disagreement, of_emulated

Figures = CollectiveFigures[Number] | TrainingFigures[Number]
Asked = CollectiveCall | Training

MOST_RECORDED = 200_000  # messages of all repetitions, up to which waits are recorded in full (1 kB each)


@dataclass(frozen=True, kw_only=True, repr=False)
class Prediction(ScenarioAnswer[Number]):
    """The result of ``ringlab predict``: simulated times in seconds, None for a run that never ends."""

    kind: ClassVar[str] = "prediction"

    limits: str = ""  # the bottlenecks of the fastest run and of the user's algorithms, on the scenario's own cluster

    @property
    def sentences(self) -> Sequence[str]:
        """The conclusions, and the bottlenecks unless they are among the explanations."""
        return [*self.conclusions, *([self.limits] if self.limits and self.limits not in self.explanations else ())]


def predict(scenario: LoadedScenario, session: Session | None = None, in_turns: bool = False) -> Prediction:
    """Simulate a scenario and its what-ifs. An interrupt returns the rows simulated so far.

    Rows that are too large to simulate are skipped and listed below the tables. ``in_turns`` means that the calibration
    was measured during the run, so that it has not aged. Raises InputError if a required calibration is missing,
    TooLarge if all rows are too large, and KeyboardInterrupt before the first row.
    """
    session = session or Session()
    check_engine(session.engine)
    simulator = _Simulator(scenario, session.find_calibration(scenario), session.engine)
    with session.computing(f"simulating {scenario.title}") as tick, keeping_paths():
        rows = simulator.rows(tick)
        if session.engine is not None and not any(simulator.engine_of(row.asked, row.place.model) for row in rows):
            raise InputError(f"{scenario.path}: engine is not used, as no messages are simulated; remove it")
        simulated, interrupted = simulator.simulate(rows, tick)
        if simulator.refused and not simulated:
            raise simulator.refused[0]
        base, *others = _group_by_cluster(simulator.places, simulated)
        if not interrupted:
            base = simulator.with_uncertainty(base, in_turns)
        answer = Prediction(
            title=scenario.title,
            file=str(scenario.path),
            cluster=scenario.cluster.title,
            collectives=base.collectives,
            training=base.training,
            what_ifs=tuple(other for other in others if not interrupted or other.collectives or other.training),
        )
        try:
            if not interrupted:
                return simulator.conclude(
                    answer, [(row.asked, each) for row, each in simulated if not row.place.number]
                )
        except KeyboardInterrupt:
            pass
        stopped = f"Stopped after {len(simulated)} of {len(rows)} rows."
        return replace(answer, interrupted=True, conclusions=(stopped,))


def predict_whole(scenario: LoadedScenario, session: Session, in_turns: bool = False) -> Prediction:
    """Simulate a scenario as ``predict`` does, but raise KeyboardInterrupt after an interrupt."""
    prediction = predict(scenario, session, in_turns)
    if prediction.interrupted:
        raise KeyboardInterrupt
    return prediction


class Place(NamedTuple):
    """A cluster to simulate. Number 0 is the scenario's own cluster; the clusters of what-ifs follow."""

    number: int
    title: str
    cluster: Cluster
    faults: Faults
    model: PerformanceModel


class Row(NamedTuple):
    """A collective or training to simulate on one cluster."""

    place: Place
    asked: Asked
    work: WorkCount

    @property
    def name(self) -> str:
        """The name that the progress bar shows."""
        job = self.asked
        return job.algorithm.full_name if isinstance(job, CollectiveCall) else f"training/{job.sync_name}"

    @property
    def may_be_too_large(self) -> bool:
        """Whether the row exceeds the message limit, unless the simulation finds a shortcut."""
        return self.work.messages > allowed(Gigabyte.MESSAGES) * self.place.faults.runs * self.work.collectives


def _group_by_cluster(
    places: Sequence[Place], simulated: Sequence[tuple[Row, Figures]]
) -> list[ClusterFigures[Number]]:
    return [
        ClusterFigures(
            title=place.title,
            cluster=place.cluster.title,
            collectives=tuple(
                each for row, each in simulated if row.place is place and isinstance(each, CollectiveFigures)
            ),
            training=tuple(each for row, each in simulated if row.place is place and isinstance(each, TrainingFigures)),
        )
        for place in places
    ]


@dataclass(frozen=True)
class _Simulator:
    scenario: LoadedScenario
    calibration: Calibration | None
    engine: str | None
    simulated: dict[tuple[int, Asked], Figures] = field(default_factory=dict)  # equal rows are simulated once
    refused: list[TooLarge] = field(default_factory=list)  # errors of the skipped rows

    @cached_property
    def places(self) -> list[Place]:
        scenario = self.scenario
        every = [(scenario.cluster.title, scenario.cluster, scenario.faults)]
        every += [(what_if.title, what_if.cluster, what_if.faults) for what_if in scenario.what_ifs]
        return [
            Place(number, title, cluster, faults, performance_model(cluster, self.calibration))
            for number, (title, cluster, faults) in enumerate(every)
        ]

    def rows(self, tick: Tick = lambda *_: None) -> list[Row]:
        rows, resolved = list[Row](), dict[tuple[int, Training], Training]()
        for place in self.places:
            cluster, model = place.cluster, place.model
            tick(0, 0, 0, f"preparing {cluster.title}")
            trainings = self.scenario.trainings if model.predicts_ddp() else predictable(self.scenario.trainings)
            for training in trainings:
                model.check_training(training, SimulationOptions(self.engine_of(training, model), place.faults))
            alike = next(other.number for other in self.places if other.cluster == cluster)
            for training in trainings:
                if (alike, training) not in resolved:
                    resolved[alike, training] = resolve_training(training, cluster, self.calibration)
            every: list[Asked] = [
                *resolve_calls(self.scenario.collective, cluster, self.calibration),
                *(resolved[alike, training] for training in trainings),
            ]
            seen: set[Asked] = set()
            for job in every:
                try:
                    work = WorkCount() if job in seen else count_work(job, model, place.faults)
                except TooLarge as error:
                    self._refuse(job, error)
                    continue
                seen.add(job)
                rows.append(Row(place, job, work))
        return rows

    def simulate(self, rows: Sequence[Row], tick: Tick) -> tuple[list[tuple[Row, Figures]], bool]:
        """Return the results of the simulated rows, and whether an interrupt ended the simulation.

        Rows that may be too large come first, so that no other row is simulated in vain. The other rows follow, the
        largest last, so that an interrupt leaves as many rows as possible.
        """
        figures: dict[int, tuple[Row, Figures]] = {}
        total, done = sum(row.work.messages for row in rows), 0
        order = sorted(range(len(rows)), key=lambda at: (not rows[at].may_be_too_large, rows[at].work.messages))
        with keeping(figures) as interruption:
            for at in order:
                row, before = rows[at], done

                def on_run(more: int, row: Row = row) -> None:
                    nonlocal done
                    done += more
                    tick(0, done, total, f"messages, {row.name}")

                on_run(0)
                try:
                    each_run = partial(on_run, row.work.messages // row.place.faults.runs)
                    figures[at] = row, self.figures(row, each_run)
                except TooLarge as error:
                    self._refuse(row.asked, error)
                done = before + row.work.messages  # fewer runs than expected may have been enough
        return [figures[at] for at in sorted(figures)], interruption.came

    def figures(self, row: Row, on_run: Callable[[], None] = lambda: None) -> Figures:
        key = row.place.number, row.asked
        if key not in self.simulated:
            self.simulated[key] = _simulate_row(row, self.engine_of(row.asked, row.place.model), on_run)
        return self.simulated[key]

    def with_uncertainty(self, figures: ClusterFigures[Number], in_turns: bool) -> ClusterFigures[Number]:
        """Add uncertainties: the disagreement of calibration folds and, on an emulated cluster, slower cores."""
        age_s = self.calibration.age_s if self.calibration is not None and not in_turns else 0.0
        others = self.places[0].model.alternatives()
        folds = [self._predict_with(fold) for fold in others.parts]
        slower = None if others.slower is None else self._predict_with(others.slower)

        def uncertainty(kind: str, index: int, names: Sequence[str]) -> dict[str, float] | None:
            shares = dict[str, float | None]()
            for name in names:
                value, *by_fold = (getattr(getattr(each, kind)[index], name) for each in (figures, *folds))
                if slower is None:
                    shares[name] = combine(disagreement(by_fold), age_s)
                else:
                    with_slower_cores = getattr(getattr(slower, kind)[index], name)
                    shares[name] = of_emulated(value or 0.0, by_fold, with_slower_cores, age_s)
            return {name: share for name, share in shares.items() if share is not None} or None

        return replace(
            figures,
            collectives=tuple(
                replace(entry, uncertainty=uncertainty("collectives", at, ["time_s"]))
                for at, entry in enumerate(figures.collectives)
            ),
            training=tuple(
                replace(entry, uncertainty=uncertainty("training", at, TRAINING_FIGURES))
                for at, entry in enumerate(figures.training)
            ),
        )

    def _predict_with(self, calibration: Calibration) -> ClusterFigures[Number]:
        other = _Simulator(replace(self.scenario, what_ifs=()), calibration, self.engine)
        return _group_by_cluster(other.places, [(row, other.figures(row)) for row in other.rows()])[0]

    def conclude(self, answer: Prediction, rows: Sequence[tuple[Asked, Figures]]) -> Prediction:
        refused = "; ".join(dict.fromkeys(map(str, self.refused)))
        caveats = [*([f"Not simulated: {refused}."] if refused else []), *self._caveats()]
        concluded = conclude(answer, self.scenario, caveats)
        limits = " ".join(dict.fromkeys(self._limits(rows)))
        if limits and len(concluded.conclusions) + bool(concluded.explanations) >= MOST_SENTENCES:
            concluded = Conclusions(*keep_few(concluded.conclusions, (limits, *concluded.explanations)))
        return replace(answer, **concluded._asdict(), limits=limits)

    def _limits(self, rows: Sequence[tuple[Asked, Figures]]) -> Iterator[str]:
        """Yield the bottleneck of the fastest run and of each of the user's own algorithms, at the largest size."""
        model = self.places[0].model
        largest = max((figures.bytes for _, figures in rows if isinstance(figures, CollectiveFigures)), default=None)
        ended = list[tuple[float, Asked]]()
        for job, figures in rows:
            if isinstance(figures, CollectiveFigures):
                if figures.bytes == largest and figures.time_s is not None and model.carried(job) is not None:
                    ended.append((figures.time_s, job))
            elif largest is None and figures.step_s is not None:
                ended.append((figures.step_s, job))
        users = [call for _, call in ended if isinstance(call, CollectiveCall) and not call.algorithm.is_builtin]
        for job in [min(ended, key=lambda pair: pair[0])[1], *users] if ended else []:
            carried = model.carried(job)
            if carried is None or (isinstance(job, Training) and model.has_no_messages(job)):
                continue
            if compact_schedule(carried.algorithm, model.cluster.world_size, carried.root).messages > MOST_LOOKED_AT:
                continue
            name = f"training with {job.sync_name}" if isinstance(job, Training) else job.algorithm.label
            size = f", {format_size(job.nbytes)}" if isinstance(job, CollectiveCall) else ""
            limits = find_limits(simulate(model, job, steps=1, engine=self.engine, faults=self.places[0].faults))
            if limits.kind != "unknown":
                yield f"What limits {name}{size}: {limits.heading}. {limits.sentence}"

    def _refuse(self, job: Asked, error: TooLarge) -> None:
        hint = "; or use an algorithm other than auto" if is_auto(job) else ""
        self.refused.append(TooLarge(f"{error}{hint}"))

    def engine_of(self, job: Asked, model: PerformanceModel) -> str | None:
        """Return the engine; None if a formula predicts the row, so that no messages are simulated."""
        if isinstance(job, CollectiveCall):
            return self.engine if job.algorithm.has_program else None
        return None if job.gradient_sync is not None and model.has_no_messages(job) else self.engine

    def _caveats(self) -> list[str]:
        algorithms = self.scenario.collective.algorithms if self.scenario.collective else ()
        titles: dict[str, dict[str, None]] = {}
        for place in self.places:
            titles.setdefault("; ".join(place.model.caveats(algorithms)), {})[place.title] = None
        return [f"{' and '.join(alike)}: {notes}." for notes, alike in titles.items() if notes]


def _simulate_row(row: Row, engine: str | None, on_run: Callable[[], None]) -> Figures:
    place, job = row.place, row.asked
    run = partial(simulate, place.model, job, engine=engine)
    if place.faults == NO_FAULTS:
        figures = _figures_of(job, run(record=False))
        on_run()
        return figures
    record = Record.WAITS if row.work.messages <= MOST_RECORDED else Record.BRIEF_WAITS
    steps = 1 if isinstance(job, CollectiveCall) else place.model.steps
    trace, faults = repeat(
        place.faults, place.cluster, run, partial(_seconds, job), record=record, steps=steps, on_run=on_run
    )
    transport = place.cluster.transport
    if isinstance(job, CollectiveCall) and place.faults.slows_ranks and transport is not None and transport.gamma == 0:
        faults = replace(faults, computing="free")
    return _figures_of(job, trace, faults)


def _figures_of(job: Asked, trace: Trace, faults: FaultFigures | None = None) -> Figures:
    return (
        collective_figures(trace, faults) if isinstance(job, CollectiveCall) else training_figures(trace, job, faults)
    )


def _seconds(job: Asked, trace: Trace) -> float:
    if isinstance(job, CollectiveCall):
        return trace.elapsed
    seconds = training_figures(trace, job).step_s
    assert seconds is not None, "a run that ended has a time"
    return seconds
