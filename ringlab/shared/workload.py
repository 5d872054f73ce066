"""Resolves ``auto`` in a scenario's collectives and training runs, counts their messages, and simulates them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import NamedTuple

from collectives.call import CollectiveCall, make_call
from collectives.catalogue import library
from collectives.declaration import NCCL
from collectives.errors import InputError, TooLarge
from collectives.proof.verifier import is_bitwise_identical
from collectives.records.calibration import Calibration
from collectives.records.trace import Trace
from collectives.training.workload import Training
from ringlab.shared.figures import (
    TRAINING_FIGURES,
    ClusterFigures,
    CollectiveFigures,
    Number,
    TrainingFigures,
    collective_figures,
    training_figures,
)
from ringlab.shared.progress import Tick
from scenarios import CollectiveComparison, LoadedScenario
from simcomm.cluster.cluster import Cluster
from simcomm.model.faults import NO_FAULTS, Faults
from simcomm.performance_models.options import SimulationOptions
from simcomm.performance_models.performance_model import PerformanceModel, performance_model
from simcomm.repetition import FaultFigures, repeat
from simcomm.schedules import compact_schedule, verified_schedule
from simcomm.selection import library_candidates, resolve_auto
from simcomm.simulate import simulate
from simcomm.uncertainty import combine, disagreement, of_emulated

Figures = CollectiveFigures[Number] | TrainingFigures[Number]
Asked = CollectiveCall | Training

FEWEST_TO_DIFFER = 3  # ranks; the sum of two numbers does not depend on their order
MOST_LOOKED_AT = 20_000  # messages of a run that is simulated again to find its bottleneck, in under a second
MOST_RECORDED = 2_000_000  # messages of all repetitions, up to which waits are recorded (100 bytes each)


def resolve_calls(
    comparison: CollectiveComparison | None, cluster: Cluster, calibration: Calibration | None
) -> list[CollectiveCall]:
    """Return the collectives of a scenario on a cluster, with an algorithm for each size in place of ``auto``."""
    calls = comparison.calls(cluster.world_size) if comparison else ()
    return [resolve_auto(call, cluster, calibration) for call in calls]


def resolve_training(training: Training, cluster: Cluster, calibration: Calibration | None) -> Training:
    """Return the training with an algorithm in place of ``auto``: one that gives all ranks bitwise equal sums."""
    sync = training.gradient_sync
    if sync is None or sync.is_decided:  # the gradients of a user's model need not be counted to run it
        return training
    call = make_call(sync, cluster.world_size, training.gradient_bytes, op="mean")
    among = (
        candidate
        for candidate in library_candidates("all_reduce", cluster)
        if is_bitwise_identical(library()[f"all_reduce/{candidate.name}"], FEWEST_TO_DIFFER)
    )
    return replace(training, gradient_sync=resolve_auto(call, cluster, calibration, among).algorithm)


def predictable(trainings: Sequence[Training]) -> list[Training]:
    """Return the training runs that can be predicted on every cluster. DDP runs are excluded."""
    return [training for training in trainings if training.gradient_sync is not None]


def leave_nccl_out(scenario: LoadedScenario) -> LoadedScenario:
    """Return the scenario without NCCL's own collectives, for a run on gloo. Raise InputError if nothing remains."""
    collective = scenario.collective
    if collective is not None:
        collective = replace(collective, algorithms=collective.programs) if collective.programs else None
    trainings = tuple(each for each in scenario.trainings if each.gradient_sync is None or each.program is not None)
    if collective is None and not trainings:
        raise InputError(
            f'{scenario.path}: "{NCCL}" cannot run on gloo; use an algorithm such as ring, or run on '
            "GPUs with --backend nccl"
        )
    return replace(scenario, collective=collective, trainings=trainings)


def check_programs(scenario: LoadedScenario, calls: Sequence[CollectiveCall], trainings: Sequence[Training]) -> None:
    """Raise ProgramError if an algorithm of ``calls`` or ``trainings`` is incorrect."""
    called = [(call.algorithm, call.root) for call in calls if call.algorithm.has_program]
    called += [(training.program, 0) for training in trainings if training.program is not None]
    for algorithm, root in dict.fromkeys(called):
        verified_schedule(algorithm, scenario.cluster.world_size, root)


def count_work(job: CollectiveCall | Training, model: PerformanceModel, faults: Faults) -> int:
    """Return the number of messages to simulate in all repetitions, or 0 if a formula predicts the time.

    Raises TooLarge if the schedule exceeds the memory limit, and ProgramError if the program is incorrect.
    """
    carried = model.carried(job)
    if carried is None:
        return 0
    messages = compact_schedule(carried.algorithm, model.cluster.world_size, carried.root).messages
    return carried.times * messages * faults.runs


class Place(NamedTuple):
    """A cluster to simulate. Number 0 is the scenario's own cluster; the other clusters are those of its what-ifs."""

    number: int
    title: str
    cluster: Cluster
    faults: Faults
    model: PerformanceModel


class Row(NamedTuple):
    place: Place
    asked: Asked
    messages: int  # in all repetitions

    @property
    def name(self) -> str:
        job = self.asked
        return job.algorithm.full_name if isinstance(job, CollectiveCall) else f"training/{job.sync_name}"


def group_by_cluster(places: Sequence[Place], simulated: Sequence[tuple[Row, Figures]]) -> list[ClusterFigures[Number]]:
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
class Simulator:
    """Simulates a scenario's collectives and training runs on its cluster and on those of its what-ifs."""

    scenario: LoadedScenario
    calibration: Calibration | None
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
                model.check_training(training, SimulationOptions(faults=place.faults))
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
                    messages = 0 if job in seen else count_work(job, model, place.faults)
                except TooLarge as error:
                    self.refused.append(error)
                    continue
                seen.add(job)
                rows.append(Row(place, job, messages))
        return rows

    def simulate(self, rows: Sequence[Row], tick: Tick) -> list[tuple[Row, Figures]]:
        figures = list[tuple[Row, Figures]]()
        total, done = sum(row.messages for row in rows), 0
        for row in rows:
            before = done

            def on_run(more: int, row: Row = row) -> None:
                nonlocal done
                done += more
                tick(0, done, total, f"messages, {row.name}")

            on_run(0)
            try:
                figures.append((row, self.figures(row, partial(on_run, row.messages // row.place.faults.runs))))
            except TooLarge as error:
                self.refused.append(error)
            done = before + row.messages  # fewer runs than expected may have been enough
        return figures

    def figures(self, row: Row, on_run: Callable[[], None] = lambda: None) -> Figures:
        key = row.place.number, row.asked
        if key not in self.simulated:
            self.simulated[key] = _simulate_row(row, on_run)
        return self.simulated[key]

    def with_uncertainty(self, simulated: Sequence[tuple[Row, Figures]], in_turns: bool) -> list[tuple[Row, Figures]]:
        """Add the uncertainty of each predicted value to the results on the scenario's own cluster.

        Predictions are repeated with each fold of the calibration and, for an emulated cluster, with slower cores. The
        more they differ, the larger the uncertainty. It also grows with the calibration's age unless ``in_turns`` is
        True.
        """
        age_s = self.calibration.age_s if self.calibration is not None and not in_turns else 0.0
        others = self.places[0].model.alternatives()
        folds = [self._predict_with(fold) for fold in others.parts]
        slower = None if others.slower is None else self._predict_with(others.slower)

        def share(at: int, name: str) -> float | None:
            value, *by_fold = (getattr(each[at], name) for each in ([entry for _, entry in simulated], *folds))
            if slower is None:
                return combine(disagreement(by_fold), age_s)
            return of_emulated(value or 0.0, by_fold, getattr(slower[at], name), age_s)

        answer = list[tuple[Row, Figures]]()
        for at, (row, entry) in enumerate(simulated):
            if not row.place.number:
                names = ["time_s"] if isinstance(entry, CollectiveFigures) else TRAINING_FIGURES
                shares = {name: known for name in names if (known := share(at, name)) is not None}
                entry = replace(entry, uncertainty=shares or None)
            answer.append((row, entry))
        return answer

    def _predict_with(self, calibration: Calibration) -> list[Figures]:
        other = Simulator(replace(self.scenario, what_ifs=()), calibration)
        return [other.figures(row) for row in other.rows()]


def _simulate_row(row: Row, on_run: Callable[[], None]) -> Figures:
    place, job = row.place, row.asked
    run = partial(simulate, place.model, job)
    if place.faults == NO_FAULTS:
        figures = _figures_of(job, run(record=False))
        on_run()
        return figures
    record = row.messages <= MOST_RECORDED
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
