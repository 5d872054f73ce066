"""The report of a comparison: its tables and the pictures that belong to it, in one file."""

import tempfile
from pathlib import Path

import viz
from collectives.records.calibration import Calibration
from ringlab.answers.comparison import Comparison
from ringlab.answers.played_runs import beside_measured, predict_runs
from ringlab.answers.predicted_trace import predict_trace
from scenarios import Scenario
from viz.player.page import render_player


def write_report(answer: Comparison, scenario: Scenario, calibration: Calibration | None, path: Path | str) -> None:
    """Write the answer as one HTML page with a player of all runs and, for each algorithm, ranks against time.

    Raises InputError for another suffix than ``.html``.
    """
    names = [algorithm.label for algorithm in scenario.collective.algorithms] if scenario.collective else []
    with tempfile.TemporaryDirectory() as folder:
        pictures: dict[str, bytes | Path] = {}
        for number, name in enumerate(names):
            picture = Path(folder) / f"{number}.png"
            viz.draw(predict_trace(scenario, calibration, name), picture)
            pictures[f"{name}, predicted: ranks against time"] = picture.read_bytes()
        viz.write_report(answer.to_dict(), pictures, path, player=_player(answer, scenario, calibration))


def _player(answer: Comparison, scenario: Scenario, calibration: Calibration | None) -> str:
    """Return the page that plays the measured runs and their predictions; empty where nothing was drawn."""
    measured = [trace for trace in answer.traces if len(trace.messages)]
    predicted = predict_runs(scenario, calibration) if scenario.collective else []
    runs = beside_measured(predicted, measured) or predicted
    return render_player(scenario.title, runs) if runs else ""
