"""Computes the data of two plots: the waterfall of a training step, and the scaling curve."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import viz
from collectives.errors import InputError, TooLarge
from collectives.records.calibration import Calibration
from collectives.records.spans import PHASES
from collectives.units import format_size
from ringlab.shared.failures import refusals_about
from ringlab.shared.figures import ClusterFigures, CollectiveFigures, SideBySide, TrainingFigures
from ringlab.shared.progress import Progress, Tick
from ringlab.shared.scenario_answer import ScenarioAnswer
from ringlab.shared.workload import Simulator, predictable
from scenarios import LoadedScenario, WhatIf
from simcomm.model.faults import NO_FAULTS


def waterfall(answer: ScenarioAnswer[Any]) -> "tuple[str, list[viz.Bar]]":
    """Return the subtitle and the bars of a waterfall plot. Each training run has a bar, divided into its phases.

    Without training runs, each collective at the largest size has a bar. In a comparison, the measured time has its own
    bar below the predicted time. Raises InputError if the answer has neither training runs nor collectives.
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
    quiet = "" if scenario.faults == NO_FAULTS else " without faults"
    return f"{scenario.cluster.title}; predictions on part of its hosts{quiet}"


def scaling_curves(
    scenario: LoadedScenario,
    calibration: Calibration | None,
    tick: Tick = lambda *_: None,
    progress: Progress | None = None,
) -> "list[viz.Curve]":
    """Return the predicted throughput and efficiency of each training on the first 2, 3, 4, 6, 8, ... hosts.

    Numbers of hosts that are too large to simulate are skipped and reported to ``progress``. Raises InputError if the
    scenario has no training, or its cluster is this machine, because a calibration is only valid for its number of
    ranks. Raises TooLarge if all numbers are too large.
    """
    trainings, cluster = predictable(scenario.trainings), scenario.cluster
    if not trainings:
        raise InputError(f"{scenario.path}: a plot of the scaling requires a [training] table")
    with refusals_about(str(scenario.path)):
        first, *others = (cluster.on_first(ranks) for ranks in doublings(cluster.world_size))
    parts = replace(
        scenario, cluster=first, collective=None, faults=NO_FAULTS,
        what_ifs=tuple(WhatIf(other.title, other) for other in others),
    )  # fmt: skip
    curves, refused = list[viz.Curve](), list[TooLarge]()
    for training in trainings:
        simulator = Simulator(replace(parts, trainings=(training,)), calibration)
        simulated = simulator.simulate(simulator.rows(), tick)
        refused += simulator.refused
        figures = {row.place.cluster.world_size: each for row, each in simulated if isinstance(each, TrainingFigures)}
        rates = [each.samples_per_s for each in figures.values()]
        shares = [each.scaling_efficiency for each in figures.values()]
        curves.append(viz.Curve(training.sync_name, list(figures), rates, shares))
    if not any(curve.world_sizes for curve in curves):
        raise refused[0]
    if refused and progress is not None:
        progress.note(f"Not simulated: {'; '.join(dict.fromkeys(map(str, refused)))}.")
    return curves


def doublings(most: int) -> list[int]:
    """Return the powers of two from 2 to ``most``, the midpoints between consecutive powers, and ``most``.

    >>> doublings(10), doublings(1)
    ([2, 3, 4, 6, 8, 10], [1])
    """
    powers = [1 << bit for bit in range(1, most.bit_length())]
    return sorted({p for power in powers for p in (power, power * 3 // 2) if p <= most} | {most})
