"""``Prediction``: a scenario simulated, with its what-ifs."""

from collections.abc import Callable, Sequence
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

MOST_RECORDED = 200_000  # messages of all repetitions that are kept to see who waited for whom; each takes a kilobyte


@dataclass(frozen=True, kw_only=True, repr=False)
class Prediction(ScenarioAnswer[Number]):
    """What ``predict`` found: times in virtual seconds, None of a run that never ends."""

    kind: ClassVar[str] = "prediction"

    limits: str = ""  # what limits the quickest run on the scenario's own cluster, and own algorithms, where known

    @property
    def sentences(self) -> Sequence[str]:
        """The conclusions and what limits the quickest run, unless that is explained later."""
        return [*self.conclusions, *([self.limits] if self.limits and self.limits not in self.explanations else ())]


def predict(scenario: LoadedScenario, session: Session | None = None, in_turns: bool = False) -> Prediction:
    """Simulate a scenario and its what-ifs; an interrupt ends it, and what is done by then is the answer.

    What is too large to be simulated is left out, and named below the tables, unless nothing else is asked for.

    The session's progress is told how many of all messages are simulated. A calibration has not aged where the run was
    ``in_turns`` with it. Raises InputError where a calibration is needed and missing, KeyboardInterrupt where nothing
    is done yet.
    """
    session = session or Session()
    check_engine(session.engine)
    simulator = _Simulator(scenario, session.find_calibration(scenario), session.engine)
    with session.computing(f"simulating {scenario.title}") as tick, keeping_paths():
        rows = simulator.rows(tick)
        if session.engine is not None and not any(simulator.engine_of(row.asked, row.place.model) for row in rows):
            raise InputError(f"{scenario.path}: engine is not used, as no messages are simulated; remove it")
        found, interrupted = simulator.simulate(rows, tick)
        if simulator.refused and not found:
            raise simulator.refused[0]
        own, *others = _by_cluster(simulator.places, found)
        if not interrupted:
            own = simulator.with_uncertainty(own, in_turns)
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
                limits = simulator.limits([(row.asked, one) for row, one in found if row.place is simulator.own])
                return _conclude(answer, simulator, limits)
        except KeyboardInterrupt:
            pass
        stopped = f"Stopped: {len(found)} of {len(rows)} rows are simulated."
        return replace(answer, interrupted=True, conclusions=(stopped,))


def predict_whole(scenario: LoadedScenario, session: Session, in_turns: bool = False) -> Prediction:
    """Return what ``predict`` does. Raise KeyboardInterrupt where that was interrupted."""
    found = predict(scenario, session, in_turns)
    if found.interrupted:
        raise KeyboardInterrupt
    return found


def _conclude(answer: Prediction, simulator: "_Simulator", limits: str) -> Prediction:
    """Return the answer with the sentences below its tables, of which ``limits`` may be one too many to be shown."""
    left_out = "; ".join(dict.fromkeys(map(str, simulator.refused)))
    caveats = [*([f"Left out: {left_out}."] if left_out else []), *simulator.grounds()]
    concluded = conclude(answer, simulator.scenario, caveats)
    if limits and len(concluded.conclusions) + bool(concluded.explanations) >= MOST_SENTENCES:
        concluded = Conclusions(*keep_few(concluded.conclusions, (limits, *concluded.explanations)))
    return replace(answer, **concluded._asdict(), limits=limits)


class Place(NamedTuple):
    """A cluster that is predicted: the scenario's own, at number 0, or that of a what-if."""

    number: int
    title: str
    cluster: Cluster
    faults: Faults
    model: PerformanceModel


class Row(NamedTuple):
    """A row of the answer that is to be simulated."""

    place: Place
    asked: Asked
    work: WorkCount

    @property
    def name(self) -> str:
        """What is simulated."""
        return (
            self.asked.algorithm.full_name
            if isinstance(self.asked, CollectiveCall)
            else f"training/{self.asked.sync_name}"
        )

    @property
    def may_be_too_large(self) -> bool:
        """Whether it can only be simulated where a shortcut applies, which is found out then."""
        return self.work.messages > allowed(Gigabyte.MESSAGES) * self.place.faults.runs * self.work.collectives


def _by_cluster(places: Sequence[Place], found: Sequence[tuple[Row, Figures]]) -> list[ClusterFigures[Number]]:
    """Return the figures of the scenario's own cluster and of its what-ifs."""
    return [
        ClusterFigures(
            title=place.title,
            cluster=place.cluster.title,
            collectives=tuple(one for row, one in found if row.place is place and isinstance(one, CollectiveFigures)),
            training=tuple(one for row, one in found if row.place is place and isinstance(one, TrainingFigures)),
        )
        for place in places
    ]


@dataclass(frozen=True)
class _Simulator:
    """The collectives and trainings of a scenario, simulated on one cluster after the other."""

    scenario: LoadedScenario
    calibration: Calibration | None
    engine: str | None
    known: dict[tuple[int, Asked], Figures] = field(default_factory=dict)  # of rows that were simulated
    refused: list[TooLarge] = field(default_factory=list)  # what is left out

    @cached_property
    def places(self) -> list[Place]:
        """The scenario's own cluster and those of its what-ifs."""
        own, others = self.scenario, self.scenario.what_ifs
        every = [
            (own.cluster.title, own.cluster, own.faults),
            *((one.title, one.cluster, one.faults) for one in others),
        ]
        return [
            Place(number, title, cluster, faults, performance_model(cluster, self.calibration))
            for number, (title, cluster, faults) in enumerate(every)
        ]

    @property
    def own(self) -> Place:
        """The scenario's own cluster."""
        return self.places[0]

    def rows(self, tick: Tick = lambda *_: None) -> list[Row]:
        """Return what is to be simulated, ``auto`` resolved, without what is refused; a row again has no messages."""
        rows, chosen = list[Row](), dict[tuple[int, Training], Training]()
        for place in self.places:
            cluster, model = place.cluster, place.model
            tick(0, 0, 0, f"preparing {cluster.title}")
            trainings = self.scenario.trainings if model.predicts_ddp() else predictable(self.scenario.trainings)
            for training in trainings:
                model.check_training(training, SimulationOptions(self.engine_of(training, model), place.faults))
            alike = next(other.number for other in self.places if other.cluster == cluster)
            for training in trainings:
                if (alike, training) not in chosen:
                    chosen[alike, training] = resolve_training(training, cluster, self.calibration)
            every: list[Asked] = [
                *resolve_calls(self.scenario.collective, cluster, self.calibration),
                *(chosen[alike, training] for training in trainings),
            ]
            seen: set[Asked] = set()
            for one in every:
                try:
                    work = WorkCount() if one in seen else count_work(one, model, place.faults)
                except TooLarge as error:
                    self._refuse(one, error)
                    continue
                seen.add(one)
                rows.append(Row(place, one, work))
        return rows

    def simulate(self, rows: Sequence[Row], tick: Tick) -> tuple[list[tuple[Row, Figures]], bool]:
        """Return the figures of all rows or, after an interrupt, of those that were done, and whether there was one.

        Rows that may be refused for their size are the first, so that no other has been in vain, and those with the
        most messages are the last, so that an interrupt leaves the others.
        """
        found: dict[int, tuple[Row, Figures]] = {}
        total, done = sum(row.work.messages for row in rows), 0
        order = sorted(range(len(rows)), key=lambda at: (not rows[at].may_be_too_large, rows[at].work.messages))
        with keeping(found) as interruption:
            for at in order:
                row, before = rows[at], done

                def on_run(more: int, row: Row = row) -> None:
                    nonlocal done
                    done += more
                    tick(0, done, total, f"messages, {row.name}")

                on_run(0)
                try:
                    figures = self.figures(row, partial(on_run, row.work.messages // row.place.faults.runs))
                    found[at] = row, figures
                except TooLarge as error:
                    self._refuse(row.asked, error)
                done = before + row.work.messages  # also where fewer runs than asked for were enough
        return [found[at] for at in sorted(found)], interruption.came

    def figures(self, row: Row, on_run: Callable[[], None] = lambda: None) -> Figures:
        """Simulate a row, unless it is known; ``on_run`` is called after each repetition."""
        key = row.place.number, row.asked
        if key not in self.known:
            self.known[key] = _figures(row, self.engine_of(row.asked, row.place.model), on_run)
        return self.known[key]

    def with_uncertainty(self, own: ClusterFigures[Number], in_turns: bool) -> ClusterFigures[Number]:
        """Return the figures of this machine with their uncertainties: predicted by each part of the calibration too.

        Of an emulated cluster they are predicted once more with slower cores.
        """
        age_s = self.calibration.age_s if self.calibration is not None and not in_turns else 0.0
        others = self.own.model.alternatives()
        parts = [self._figures_by(part) for part in others.parts]
        slower = None if others.slower is None else self._figures_by(others.slower)

        def stated(kind: str, index: int, names: Sequence[str]) -> dict[str, float] | None:
            row, *of_parts = (getattr(each, kind)[index] for each in (own, *parts))
            found = dict[str, float | None]()
            for name in names:
                values = [getattr(part, name) for part in of_parts]
                if slower is None:
                    found[name] = combine(disagreement(values), age_s)
                else:
                    on_slower = getattr(getattr(slower, kind)[index], name)
                    found[name] = of_emulated(getattr(row, name) or 0.0, values, on_slower, age_s)
            return {name: share for name, share in found.items() if share is not None} or None

        collectives = [
            replace(one, uncertainty=stated("collectives", at, ["time_s"])) for at, one in enumerate(own.collectives)
        ]
        training = [
            replace(one, uncertainty=stated("training", at, TRAINING_FIGURES)) for at, one in enumerate(own.training)
        ]
        return replace(own, collectives=tuple(collectives), training=tuple(training))

    def _figures_by(self, calibration: Calibration) -> ClusterFigures[Number]:
        """Return the figures of the scenario's own cluster by another calibration."""
        other = _Simulator(replace(self.scenario, what_ifs=()), calibration, self.engine)
        return _by_cluster(other.places, [(row, other.figures(row)) for row in other.rows()])[0]

    def limits(self, found: Sequence[tuple[Asked, Figures]]) -> str:
        """Return what limits the quickest collective at the largest size, else training, as the player says it.

        The same is said of the user's own algorithms at that size. ``found`` is what was simulated on the scenario's
        own cluster.
        """
        ended = self._ended(found)
        own = [asked for _, asked in ended if isinstance(asked, CollectiveCall) and not asked.algorithm.is_builtin]
        explained = [min(ended, key=lambda pair: pair[0])[1], *own] if ended else []
        return " ".join(filter(None, map(self._limit, dict.fromkeys(explained))))

    def _limit(self, asked: Asked) -> str:
        """Return what limits one run.

        It is simulated once more for its messages, unless these are many; empty then, and where nothing is known.
        """
        model = self.own.model
        carried = model.carried(asked)
        if carried is None or (isinstance(asked, Training) and model.has_no_messages(asked)):
            return ""
        if compact_schedule(carried.algorithm, model.cluster.world_size, carried.root).messages > MOST_LOOKED_AT:
            return ""
        if isinstance(asked, CollectiveCall):
            what = f"{asked.algorithm.label}, {format_size(asked.nbytes)}"
        else:
            what = f"training with {asked.sync_name}"
        trace = simulate(model, asked, steps=1, engine=self.engine, faults=self.own.faults)
        limits = find_limits(trace)
        return "" if limits.kind == "unknown" else f"What limits {what}: {limits.heading}. {limits.sentence}"

    def _ended(self, found: Sequence[tuple[Asked, Figures]]) -> list[tuple[float, Asked]]:
        """Return seconds of the collectives of messages at the largest size or, without collectives, of trainings."""
        model = self.own.model
        largest = max((one.bytes for _, one in found if isinstance(one, CollectiveFigures)), default=None)
        ended = list[tuple[float, Asked]]()
        for asked, one in found:
            if isinstance(one, CollectiveFigures):
                if one.bytes == largest and one.time_s is not None and model.carried(asked) is not None:
                    ended.append((one.time_s, asked))
            elif largest is None and one.step_s is not None:
                ended.append((one.step_s, asked))
        return ended

    def _refuse(self, asked: Asked, error: TooLarge) -> None:
        """Note why a row is left out, and what else may do where the model chose its algorithm."""
        hint = "; or name an algorithm in place of auto" if is_auto(asked) else ""
        self.refused.append(TooLarge(f"{error}{hint}"))

    def engine_of(self, asked: Asked, model: PerformanceModel) -> str | None:
        """Return the engine: none for NCCL's own, and for a sync that is predicted as a whole, unless it is torch's."""
        if isinstance(asked, CollectiveCall):
            return self.engine if asked.algorithm.has_program else None
        return None if asked.gradient_sync is not None and model.has_no_messages(asked) else self.engine

    def grounds(self) -> list[str]:
        """Return a sentence with the caveats of each cluster's predictions, one for clusters that share them."""
        algorithms = self.scenario.collective.algorithms if self.scenario.collective else ()
        titles: dict[str, dict[str, None]] = {}
        for place in self.places:
            titles.setdefault("; ".join(place.model.caveats(algorithms)), {})[place.title] = None
        return [f"{' and '.join(alike)}: {notes}." for notes, alike in titles.items() if notes]


def _figures(row: Row, engine: str | None, on_run: Callable[[], None]) -> Figures:
    """Return the figures of a row: of one run or, under faults, of the repetition with the median time."""
    place, asked = row.place, row.asked
    run = partial(simulate, place.model, asked, engine=engine)
    if place.faults == NO_FAULTS:
        found = _figures_of(asked, run(record=False))
        on_run()
        return found
    record = Record.WAITS if row.work.messages <= MOST_RECORDED else Record.BRIEF_WAITS
    steps = 1 if isinstance(asked, CollectiveCall) else place.model.steps
    trace, about = repeat(
        place.faults, place.cluster, run, partial(_seconds, asked), record=record, steps=steps, on_run=on_run
    )
    transport = place.cluster.transport
    if (
        isinstance(asked, CollectiveCall)
        and place.faults.slows_ranks
        and transport is not None
        and transport.gamma == 0
    ):
        about = replace(about, computing="free")
    return _figures_of(asked, trace, about)


def _figures_of(asked: Asked, trace: Trace, about: FaultFigures | None = None) -> Figures:
    return (
        collective_figures(trace, about) if isinstance(asked, CollectiveCall) else training_figures(trace, asked, about)
    )


def _seconds(asked: Asked, trace: Trace) -> float:
    """Return the seconds of a collective, or of a step."""
    if isinstance(asked, CollectiveCall):
        return trace.elapsed
    seconds = training_figures(trace, asked).step_s
    assert seconds is not None, "a run that ended has a time"
    return seconds
