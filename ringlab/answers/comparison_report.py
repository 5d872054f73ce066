"""The report of a prediction or a comparison: its pictures, its player and its tables, in one file."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import viz
from collectives.errors import InputError
from collectives.records.calibration import Calibration
from collectives.units import format_size
from ringlab.answers.comparison import Comparison
from ringlab.answers.conclusions import headline
from ringlab.answers.figures import SideBySide
from ringlab.answers.played_runs import beside_measured, predict_runs
from ringlab.answers.plots import describe_curves, scaling_curves, waterfall
from ringlab.answers.scenario_answer import ScenarioAnswer
from scenarios import Scenario
from viz.accuracy import Dots, accuracy_figure
from viz.player.page import render_player
from viz.scaling import scaling_figure
from viz.style.figures import render_figure
from viz.topology import MOST_NODES, topology_figure
from viz.waterfall import MOST_BARS, waterfall_figure


def write_report(
    answer: ScenarioAnswer[Any], scenario: Scenario, calibration: Calibration | None, path: Path | str
) -> None:
    """Write the answer as one HTML page: its cluster, waterfall, scaling curve and player, and predicted and measured.

    What is too large to be drawn is left out. Raises InputError for another suffix than ``.html``.
    """
    viz.check_file(path, "a report")
    pictures = dict(_pictures(answer, scenario, calibration))
    compared = dict(_compared(answer)) if isinstance(answer, Comparison) else {}
    viz.write_report(
        answer.to_dict(), pictures, path, _player(answer, scenario, calibration), compared, headline(answer)
    )


def _pictures(
    answer: ScenarioAnswer[Any], scenario: Scenario, calibration: Calibration | None
) -> Iterator[tuple[str, bytes]]:
    """Yield caption and picture of the cluster, the waterfall and the scaling curve, each where there is one."""
    cluster = scenario.cluster
    if len(cluster.graph) <= MOST_NODES:
        yield f"{cluster.title}: a number is a rank", _png(topology_figure(cluster.graph, cluster.hosts, cluster.title))
    subtitle, bars = waterfall(answer)
    if len(bars) <= MOST_BARS:
        yield "Each bar is predicted.", _png(waterfall_figure(answer.title, subtitle, bars))
    try:
        curves = scaling_curves(scenario, calibration)
    except InputError:  # no training in it, or no calibration for fewer ranks
        return
    yield (
        "Predicted on so many of the cluster's hosts, beside as many times what one rank does.",
        _png(scaling_figure("How it scales", describe_curves(scenario), curves)),
    )


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


def _player(answer: ScenarioAnswer[Any], scenario: Scenario, calibration: Calibration | None) -> str:
    """Return the page that plays the measured runs and their predictions; empty where nothing was drawn."""
    measured = [trace for trace in getattr(answer, "traces", ()) if len(trace.messages)]
    predicted = predict_runs(scenario, calibration) if scenario.collective else []
    runs = beside_measured(predicted, measured) or predicted
    return render_player(scenario.title, runs) if runs else ""
