"""The report of a prediction or a comparison: its pictures, its player and its tables, in one file."""

from collections.abc import Iterator, Sequence
from itertools import compress
from math import inf
from pathlib import Path
from typing import Any

import viz
from collectives.calibration.calibration import Calibration
from collectives.errors import InputError, TooLarge
from collectives.units import format_size, format_time
from ringlab.answers.comparison import Comparison
from ringlab.answers.conclusions import headline
from ringlab.answers.figures import SideBySide
from ringlab.answers.played_runs import beside_measured, predict_runs
from ringlab.answers.plots import describe_curves, scaling_curves, waterfall
from ringlab.answers.prediction import MOST_LOOKED_AT
from ringlab.answers.scenario_answer import ScenarioAnswer
from ringlab.shared.progress import Progress, Tick, computing
from scenarios import Scenario
from simcomm.cluster.calibrated import resolve_transport
from simcomm.cluster.cluster import IDEAL, Cluster
from viz.accuracy import Dots, accuracy_figure
from viz.path_strip import path_figure
from viz.player.page import PlayedRun, render_player
from viz.scaling import scaling_figure
from viz.style import render_figure
from viz.topology import MOST_NODES, topology_figure
from viz.waterfall import MOST_BARS, waterfall_figure


def write_report(
    answer: ScenarioAnswer[Any],
    scenario: Scenario,
    calibration: Calibration | None,
    path: Path | str,
    progress: Progress | None = None,
) -> None:
    """Write the answer as one HTML page: its cluster, waterfall, scaling curve and player, and predicted and measured.

    What is too large to be drawn is left out, and so is a run in which nothing is sent. Raises InputError for another
    suffix than ``.html``.
    """
    viz.check_file(path, "a report")
    compared = dict(_compared(answer)) if isinstance(answer, Comparison) else {}
    with computing(progress, f"writing {path}") as tick:
        runs = _runs(scenario, calibration, tick, progress) if scenario.collective else []
        viz.write_report(
            answer=answer.to_dict() | {"limits": getattr(answer, "limits", "")},
            pictures=dict(_pictures(answer, scenario, calibration, tick, progress)),
            path=path,
            player=_player(answer, scenario, runs),
            compared=compared,
            headline=headline(answer),
            critical=dict(_critical(runs)),
            assumptions=list(_assumptions(scenario, calibration)),
        )


def _runs(
    scenario: Scenario, calibration: Calibration | None, tick: Tick, progress: Progress | None
) -> list[PlayedRun]:
    """Return the runs that the player shows, without those that are too large to be looked at, which are named."""

    def leave_out(error: TooLarge) -> None:
        if progress is not None:
            progress.note(f"not drawn: {error}")

    runs = predict_runs(scenario, calibration, tick=tick, leave_out=leave_out)
    traces = [run.trace for run in runs]
    shown = [(len(one.messages) > 0 or one.failure is not None) and 0 < one.elapsed < inf for one in traces]
    return list(compress(runs, shown))


def _pictures(
    answer: ScenarioAnswer[Any],
    scenario: Scenario,
    calibration: Calibration | None,
    tick: Tick,
    progress: Progress | None,
) -> Iterator[tuple[str, bytes]]:
    """Yield caption and picture of the cluster, the waterfall and the scaling curve, each where there is one."""
    cluster = _calibrated(scenario, calibration)
    if len(cluster.graph) <= MOST_NODES:
        yield "The cluster.", _png(topology_figure(cluster.graph, cluster.hosts, cluster.title))
    subtitle, bars = waterfall(answer)
    if len(bars) <= MOST_BARS:
        said = (
            "One bar is predicted, the other measured." if isinstance(answer, Comparison) else "Every bar is predicted."
        )
        yield said, _png(waterfall_figure("Where the time goes", subtitle, bars))
    try:
        curves = scaling_curves(scenario, calibration, tick, progress)
    except InputError:  # no training in it, or no calibration for fewer ranks
        return
    yield (
        "Predicted on so many of the cluster's hosts, beside as many times what one rank does.",
        _png(scaling_figure("How it scales", describe_curves(scenario), curves)),
    )


def _calibrated(scenario: Scenario, calibration: Calibration | None) -> Cluster:
    """Return the scenario's cluster with what was measured of this machine, where it needs that and has it."""
    try:
        return resolve_transport(scenario.cluster, calibration)[0]
    except InputError:
        return scenario.cluster


def _critical(runs: Sequence[PlayedRun]) -> Iterator[tuple[str, bytes]]:
    """Yield the picture of what the end of the quickest run waited for."""
    ended = [run for run in runs if run.trace.is_complete and 0 < len(run.trace.messages) <= MOST_LOOKED_AT]
    if ended:
        quickest = min(ended, key=lambda run: run.trace.elapsed)
        yield "What the end of the run waited for, one after the other, and in all.", _png(path_figure(quickest.trace))


def _assumptions(scenario: Scenario, calibration: Calibration | None) -> Iterator[str]:
    """Yield what the predictions stand on, in sentences."""
    transport = _calibrated(scenario, calibration).transport
    if transport == IDEAL:
        yield "Messages take the latencies and bandwidths of their links, and nothing else."
    elif transport is not None:
        reducing = f"reducing takes {format_time(transport.gamma * 1e6)} a megabyte" if transport.gamma else ""
        parts = [
            f"{format_time(transport.overhead)} a message" if transport.overhead else "",
            f"{100 * transport.goodput:.3g} % of the line rate is payload",
            reducing,
        ]
        yield f"Transport {transport.name}: {', '.join(filter(None, parts))} ({transport.source})."
    if scenario.trainings:
        yield "A training step is forward, backward, gradient sync and optimizer, one after the other."
    yield "Links are shared max-min fairly; packet loss, other jobs and eager messages are not modelled."


def _png(figure: Any) -> bytes:
    return render_figure(figure, "png")


def _compared(answer: Comparison) -> Iterator[tuple[str, bytes]]:
    """Yield the picture of predicted against measured: a dot a row of the tables, with the range measured."""
    dots = []
    for name in dict.fromkeys(one.algorithm for one in answer.collectives):
        rows = [
            (one.time_s, (one.time_min_s.measured, one.time_max_s.measured))
            for one in answer.collectives
            if one.algorithm == name and _is_compared(one.time_s)
        ]
        if rows:
            times, ranges = zip(*rows, strict=True)
            sizes = sorted({one.bytes for one in answer.collectives})
            panel = f"{format_size(sizes[0])} to {format_size(sizes[-1])}"
            dots.append(Dots(panel, name, [t.measured for t in times], [t.predicted for t in times], ranges))
    steps = [(one.gradient_sync, one.step_s) for one in answer.training if _is_compared(one.step_s)]
    dots += [Dots("a training step", name, [step.measured or 0.0], [step.predicted or 0.0]) for name, step in steps]
    if dots:
        figure = accuracy_figure("Predicted against measured", answer.cluster, dots)
        yield "Grey: off by less than a factor of 1.3. Lines: the range over the repetitions.", _png(figure)


def _is_compared(value: SideBySide) -> bool:
    return bool(value.predicted) and bool(value.measured)


def _player(answer: ScenarioAnswer[Any], scenario: Scenario, predicted: Sequence[PlayedRun]) -> str:
    """Return the page that plays the measured runs and their predictions; empty where nothing was drawn."""
    measured = [trace for trace in getattr(answer, "traces", ()) if len(trace.messages)]
    runs = beside_measured(predicted, measured) or predicted
    return render_player(scenario.title, runs) if runs else ""
