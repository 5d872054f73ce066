"""Computes the data of two plots: the waterfall of a training step, and the scaling curve."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import viz
from collectives.errors import InputError, TooLarge
from collectives.records.calibration import Calibration
from collectives.records.spans import PHASES
from collectives.training.workload import Training
from collectives.units import count, format_size
from ringlab.shared.failures import refusals_about
from ringlab.shared.figures import ClusterFigures, CollectiveFigures, SideBySide, TrainingFigures, training_figures
from ringlab.shared.progress import Progress, Tick
from ringlab.shared.scenario_answer import ScenarioAnswer
from ringlab.shared.workload import WorkCount, count_work, predictable, resolve_training
from scenarios import LoadedScenario
from simcomm.cluster.cluster import Cluster
from simcomm.model.faults import NO_FAULTS
from simcomm.performance_models.performance_model import PerformanceModel, performance_model
from simcomm.simulate import simulate


def waterfall(answer: ScenarioAnswer[Any]) -> "tuple[str, list[viz.Bar]]":
    """Return a subtitle, and bars for all training runs. Without a training run, the bars are for collectives.

    Only collectives at the largest size have a bar. A measured value has its own bar below the predicted one. Raises
    InputError if there are neither trainings nor collectives.
    """
    clusters: Sequence[ClusterFigures[Any]] = [answer.own, *answer.what_ifs]
    below = "; what-ifs below" if answer.what_ifs else ""
    trained = [
        bar
        for cluster in clusters
        for entry in cluster.training
        for bar in _bars(
            cluster.title, entry.gradient_sync, entry.step_s, {p: getattr(entry, f"{p}_s") for p in PHASES}
        )
    ]
    if trained:
        return f"a training step by its phases{below}", trained
    entries: list[tuple[str, CollectiveFigures[Any]]] = [
        (cluster.title, entry) for cluster in clusters for entry in cluster.collectives
    ]
    if not entries:
        raise InputError(f"{answer.file}: nothing to draw; add a [training] or [collective] table")
    largest = max(entry.bytes for _, entry in entries)
    shown = [(title, entry) for title, entry in entries if entry.bytes == largest]
    bars = [
        bar
        for title, entry in shown
        for bar in _bars(title, entry.algorithm, entry.time_s, {entry.collective: entry.time_s})
    ]
    return f"{shown[0][1].collective} of {format_size(largest)}{below}", bars


def _bars(group: str, name: str, total: Any, parts: Mapping[str, Any]) -> "Iterator[viz.Bar]":
    if not isinstance(total, SideBySide):
        yield viz.Bar(group, name, {} if total is None else _lasting(parts), total)
        return
    for side, seconds in (("predicted", total.predicted), ("measured", total.measured)):
        if seconds is not None:
            of_side = {key: getattr(each, side) for key, each in parts.items()}
            yield viz.Bar(group, f"{name}, {side}", _lasting(of_side), seconds)


def _lasting(parts: Mapping[str, float | None]) -> dict[str, float]:
    return {key: each or 0.0 for key, each in parts.items() if each or key != "loading"}


def describe_curves(scenario: LoadedScenario) -> str:
    """Return the subtitle of the scaling curve."""
    quiet = "" if scenario.faults == NO_FAULTS else " without faults"
    return f"{scenario.cluster.title}; predictions on part of its hosts{quiet}"


def scaling_curves(
    scenario: LoadedScenario,
    calibration: Calibration | None,
    tick: Tick = lambda *_: None,
    progress: Progress | None = None,
) -> "list[viz.Curve]":
    """Simulate each training on growing parts of the cluster, which start with its first host.

    Runs that are too large are skipped and reported to ``progress``. Raises InputError if the scenario has no
    training, or its cluster is this machine, because a calibration is only valid for all its ranks.
    """
    trainings, cluster = predictable(scenario.trainings), scenario.cluster
    if not trainings:
        raise InputError(f"{scenario.path}: a [training] table is required to plot its scaling")
    with refusals_about(str(scenario.path)):
        firsts = [cluster.on_first(ranks) for ranks in doublings(cluster.world_size)]
    points, refused = _points(trainings, firsts, calibration)
    if not any(points):
        raise refused[0]
    done, total = 0, sum(resolved.work.messages for row in points for resolved in row)
    curves = []
    for training, row in zip(trainings, points, strict=True):
        figures: dict[int, TrainingFigures[float | None]] = {}
        for resolved, model, work in row:
            tick(0, done, total, f"messages, {training.sync_name}, {count(model.cluster.world_size, 'rank')}")
            try:
                figures[model.cluster.world_size] = training_figures(simulate(model, resolved, record=False), resolved)
            except TooLarge as error:
                refused.append(error)
            done += work.messages
        rates = [resolved.samples_per_s for resolved in figures.values()]
        shares = [resolved.scaling_efficiency for resolved in figures.values()]
        curves.append(viz.Curve(training.sync_name, list(figures), rates, shares))
    if not any(curve.world_sizes for curve in curves):
        raise refused[0]
    if refused and progress is not None:
        progress.note(f"Not simulated: {'; '.join(dict.fromkeys(map(str, refused)))}.")
    return curves


class _Point(NamedTuple):
    training: Training
    model: PerformanceModel
    work: WorkCount


def _points(
    trainings: Sequence[Training], firsts: Sequence[Cluster], calibration: Calibration | None
) -> tuple[list[list[_Point]], list[TooLarge]]:
    points, refused = list[list[_Point]](), list[TooLarge]()
    for training in trainings:
        points.append([])
        for first in firsts:
            try:
                resolved, model = resolve_training(training, first, calibration), performance_model(first, calibration)
                points[-1].append(_Point(resolved, model, count_work(resolved, model, NO_FAULTS)))
            except TooLarge as error:
                refused.append(error)
    return points, refused


def doublings(most: int) -> list[int]:
    """Return the powers of two up to ``most``, one number halfway between each pair, and ``most``.

    >>> doublings(10), doublings(1)
    ([2, 3, 4, 6, 8, 10], [1])
    """
    powers = [1 << bit for bit in range(1, most.bit_length())]
    return sorted({p for power in powers for p in (power, power * 3 // 2) if p <= most} | {most})
