"""The command ``ringlab compare``."""

from pathlib import Path
from typing import Annotated

import typer

from ringlab.terminal.options import BackendOpt, CalibrationOpt, JsonOpt, ScenarioArg, SetOpt, TimeoutOpt
from ringlab.terminal.output import write_answer
from ringlab.terminal.progress import TerminalProgress, is_first_rank


def compare(
    scenario: ScenarioArg,
    backend: BackendOpt = "gloo",
    calibration: CalibrationOpt = None,
    report: Annotated[Path | None, typer.Option(metavar="FILE.html", help="Write a report with pictures.")] = None,
    timeout: TimeoutOpt = 600.0,
    json_to: JsonOpt = None,
    set_keys: SetOpt = None,
) -> None:
    """Predict and run, and show the error of each prediction."""
    from ringlab.scenario import load
    from ringlab.terminal.scenario_tables import show_scenario_answer

    loaded = load(scenario, *(set_keys or ()))
    answer = loaded.compare(calibration=calibration, backend=backend, timeout=timeout, progress=TerminalProgress())
    write_answer(answer, json_to, show_scenario_answer)
    if report is not None and is_first_rank():
        loaded.write_report(answer, report, calibration=calibration)
