"""Writes an HTML report of a prediction or a comparison, with pictures, player and tables in one file."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Any

import viz
from collectives.errors import InputError
from collectives.records.calibration import Calibration
from collectives.units import format_size
from ringlab.pictures.plots import describe_curves, scaling_curves, waterfall
from ringlab.pictures.traces import OneRun, beside_measured, predict_runs
from ringlab.session import Session
from ringlab.shared.conclusions import headline
from ringlab.shared.figures import SideBySide
from ringlab.shared.scenario_answer import ScenarioAnswer
from ringlab.shared.workload import MOST_LOOKED_AT
from ringlab.table import Sentences, render_html
from scenarios import LoadedScenario
from simcomm.cluster.calibrated import resolve_transport
from viz.accuracy import Dots, accuracy_figure
from viz.curves import scaling_figure
from viz.path_strip import path_figure
from viz.player.page import render_player
from viz.player.runs import PlayedRun
from viz.report import ReportParts
from viz.style import render_figure
from viz.topology import MOST_NODES, topology_figure
from viz.waterfall import MOST_BARS, waterfall_figure


def write_report(answer: ScenarioAnswer[Any], scenario: LoadedScenario, path: Path | str, session: Session) -> None:
    """Write an HTML report of a prediction or a comparison, with plots, a player of the messages, and tables.

    Runs that are too large or send nothing are skipped. Raises InputError unless the suffix is ``.html`` or ``.htm``.
    """
    viz.check_file(path, "a report")
    if not isinstance(answer, ScenarioAnswer):
        raise InputError(f"answer must be the result of predict or compare, not {answer!r}")
    known = getattr(answer, "calibration", None) or session.find_calibration(scenario)
    is_compared = answer.kind == "comparison"
    with session.computing(f"writing {path}") as tick:
        runs = list[PlayedRun]()
        if scenario.collective:
            note = session.progress.note
            every = predict_runs(OneRun(scenario, known), tick, lambda error: note(f"not drawn: {error}"))
            timed = [run for run in every if 0 < run.trace.elapsed < inf]
            runs = [run for run in timed if len(run.trace.messages) or run.trace.failure is not None]
        measured = [trace for trace in getattr(answer, "traces", ()) if len(trace.messages)]
        played = beside_measured(runs, measured) or runs
        pictures = dict(_pictures(answer, scenario, known))
        with suppress(InputError):  # without a training, or without a calibration for fewer ranks
            curves = scaling_curves(scenario, known, tick, session.progress)
            if any(len(curve.world_sizes) > 1 for curve in curves):
                caption = "Predicted throughput on part of the cluster's hosts, and perfect scaling."
                pictures[caption] = render_figure(scaling_figure("How it scales", describe_curves(scenario), curves))
        parts = ReportParts(
            tables=render_html(part for part in answer.show() if not isinstance(part, Sentences)),
            pictures=pictures,
            critical=dict(_critical(runs)),
            compared=dict(_compared(answer)) if is_compared else {},
            player=render_player(scenario.title, played) if played else "",
            headline=headline(answer),
        )
        viz.write_report(answer.to_dict() | {"limits": getattr(answer, "limits", "")}, parts, path)


def _pictures(
    answer: ScenarioAnswer[Any], scenario: LoadedScenario, calibration: Calibration | None
) -> Iterator[tuple[str, bytes]]:
    cluster = scenario.cluster
    with suppress(InputError):
        cluster = resolve_transport(cluster, calibration)[0]
    if len(cluster.graph) <= MOST_NODES:
        yield "The cluster.", render_figure(topology_figure(cluster.graph, cluster.hosts, cluster.title))
    subtitle, bars = waterfall(answer)
    if len(bars) <= MOST_BARS:
        is_compared = answer.kind == "comparison"
        caption = "One bar is predicted, the other measured." if is_compared else "Every bar is predicted."
        yield caption, render_figure(waterfall_figure("Where the time goes", subtitle, bars))


def _critical(runs: Sequence[PlayedRun]) -> Iterator[tuple[str, bytes]]:
    ended = [run for run in runs if run.trace.is_complete and 0 < len(run.trace.messages) <= MOST_LOOKED_AT]
    if ended:
        quickest = min(ended, key=lambda run: run.trace.elapsed)
        yield (
            "The critical path: the operations that the end of the run waited for, in order and by kind.",
            render_figure(path_figure(quickest.trace)),
        )


def _compared(answer: ScenarioAnswer[SideBySide]) -> Iterator[tuple[str, bytes]]:
    dots = []
    for name in dict.fromkeys(entry.algorithm for entry in answer.collectives):
        rows = [
            (entry.time_s, (entry.time_min_s.measured, entry.time_max_s.measured))
            for entry in answer.collectives
            if entry.algorithm == name and _is_compared(entry.time_s)
        ]
        if rows:
            times, ranges = zip(*rows, strict=True)
            sizes = sorted({entry.bytes for entry in answer.collectives})
            panel = f"{format_size(sizes[0])} to {format_size(sizes[-1])}"
            dots.append(Dots(panel, name, [t.measured for t in times], [t.predicted for t in times], ranges))
    steps = [(entry.gradient_sync, entry.step_s) for entry in answer.training if _is_compared(entry.step_s)]
    dots += [Dots("a training step", name, [step.measured or 0.0], [step.predicted or 0.0]) for name, step in steps]
    if dots:
        figure = accuracy_figure("Predicted against measured", answer.cluster, dots)
        yield "Grey: off by less than a factor of 1.3. Lines: the range over the repetitions.", render_figure(figure)


def _is_compared(value: SideBySide) -> bool:
    return bool(value.predicted) and bool(value.measured)
