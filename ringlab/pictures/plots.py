"""What still pictures of a scenario show: the waterfall of its step, and its scaling curve."""

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
from simcomm.cluster.cluster import Cluster, doublings
from simcomm.model.faults import NO_FAULTS
from simcomm.performance_models.performance_model import PerformanceModel, performance_model
from simcomm.simulate import simulate


def waterfall(answer: ScenarioAnswer[Any]) -> "tuple[str, list[viz.Bar]]":
    """Return a subtitle and a bar for each training, or each collective at the largest size, of an answer's clusters.

    What was measured has a bar of its own below what was predicted. Raises InputError for an answer without either.
    """
    clusters: Sequence[ClusterFigures[Any]] = [answer.own, *answer.what_ifs]
    below = "; what-ifs below" if answer.what_ifs else ""
    trained = [
        bar
        for cluster in clusters
        for one in cluster.training
        for bar in _bars(cluster.title, one.gradient_sync, one.step_s, {p: getattr(one, f"{p}_s") for p in PHASES})
    ]
    if trained:
        return f"a training step by its phases{below}", trained
    entries: list[tuple[str, CollectiveFigures[Any]]] = [
        (cluster.title, one) for cluster in clusters for one in cluster.collectives
    ]
    if not entries:
        raise InputError(f"{answer.file}: nothing to draw; add a [training] or [collective] table")
    largest = max(one.bytes for _, one in entries)
    shown = [(title, one) for title, one in entries if one.bytes == largest]
    bars = [
        bar for title, one in shown for bar in _bars(title, one.algorithm, one.time_s, {one.collective: one.time_s})
    ]
    return f"{shown[0][1].collective} of {format_size(largest)}{below}", bars


def _bars(group: str, name: str, whole: Any, parts: Mapping[str, Any]) -> "Iterator[viz.Bar]":
    """Yield the bar of a figure; where it was predicted and measured, one of each."""
    if not isinstance(whole, SideBySide):
        yield viz.Bar(group, name, {} if whole is None else _lasting(parts), whole)
        return
    for side, seconds in (("predicted", whole.predicted), ("measured", whole.measured)):
        if seconds is not None:
            of_side = {key: getattr(each, side) for key, each in parts.items()}
            yield viz.Bar(group, f"{name}, {side}", _lasting(of_side), seconds)


def _lasting(parts: Mapping[str, float | None]) -> dict[str, float]:
    """Return the parts of a bar; loading only where it takes time."""
    return {key: each or 0.0 for key, each in parts.items() if each or key != "loading"}


def describe_curves(scenario: LoadedScenario) -> str:
    """Return the line under the title of the scaling curve."""
    quiet = "" if scenario.faults == NO_FAULTS else " without faults"
    return f"{scenario.cluster.title}; so many of its hosts, predicted{quiet}"


def scaling_curves(
    scenario: LoadedScenario,
    calibration: Calibration | None,
    tick: Tick = lambda *_: None,
    progress: Progress | None = None,
) -> "list[viz.Curve]":
    """Simulate each training on the first hosts of its cluster, for numbers of ranks that double.

    ``progress`` is told what is too large and left out.
    Raises InputError for a scenario without a training, or on this machine, whose calibration is for all its ranks.
    """
    trainings, whole = predictable(scenario.trainings), scenario.cluster
    if not trainings:
        raise InputError(f"{scenario.path}: a [training] table is required to plot its scaling")
    with refusals_about(str(scenario.path)):
        firsts = [whole.on_first(ranks) for ranks in doublings(whole.world_size)]
    points, refused = _points(trainings, firsts, calibration)
    if not any(points):
        raise refused[0]
    done, total = 0, sum(one.work.messages for row in points for one in row)
    curves = []
    for training, row in zip(trainings, points, strict=True):
        found: dict[int, TrainingFigures[float | None]] = {}
        for one, model, work in row:
            tick(0, done, total, f"messages, {training.sync_name}, {count(model.cluster.world_size, 'rank')}")
            try:
                found[model.cluster.world_size] = training_figures(simulate(model, one, record=False), one)
            except TooLarge as error:
                refused.append(error)
            done += work.messages
        rates = [one.samples_per_s for one in found.values()]
        shares = [one.scaling_efficiency for one in found.values()]
        curves.append(viz.Curve(training.sync_name, list(found), rates, shares))
    if not any(curve.world_sizes for curve in curves):
        raise refused[0]
    if refused and progress is not None:
        progress.note(f"Left out: {'; '.join(dict.fromkeys(map(str, refused)))}.")
    return curves


class _Point(NamedTuple):
    """A training on so many hosts, and what there is to simulate for it."""

    training: Training
    model: PerformanceModel
    work: WorkCount


def _points(
    trainings: Sequence[Training], firsts: Sequence[Cluster], calibration: Calibration | None
) -> tuple[list[list[_Point]], list[TooLarge]]:
    """Return the points of each training's curve, and why others are left out."""
    points, refused = list[list[_Point]](), list[TooLarge]()
    for training in trainings:
        points.append([])
        for first in firsts:
            try:
                one, model = resolve_training(training, first, calibration), performance_model(first, calibration)
                points[-1].append(_Point(one, model, count_work(one, model, NO_FAULTS)))
            except TooLarge as error:
                refused.append(error)
    return points, refused
