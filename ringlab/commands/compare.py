"""The command ``ringlab compare``."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from ringlab.terminal.options import (
    BackendOpt,
    CalibrationOpt,
    EmulateOpt,
    ExplainOpt,
    JsonOpt,
    ScenarioArg,
    SetOpt,
    TimeoutOpt,
)
from ringlab.terminal.output import check_outputs, write_answer
from ringlab.terminal.progress import TerminalProgress


def compare(
    scenario: ScenarioArg,
    backend: BackendOpt = "gloo",
    calibration: CalibrationOpt = None,
    report: Annotated[Path | None, typer.Option(metavar="FILE.html", help="Write a report with pictures.")] = None,
    emulate: EmulateOpt = False,
    timeout: TimeoutOpt = 600.0,
    explain: ExplainOpt = False,
    json_to: JsonOpt = None,
    set_keys: SetOpt = None,
) -> None:
    """Predict and run, and show the error of each prediction."""
    from ringlab.scenario import load
    from ringlab.terminal.scenario_tables import show_scenario_answer
    from viz import check_file

    loaded = load(scenario, *(set_keys or ()))
    if report is not None:
        check_file(report, "a report")
    check_outputs(json_to, report, reads=calibration)
    options: dict[str, Any] = {"calibration": calibration, "backend": backend, "timeout": timeout, "emulate": emulate}
    answer = loaded.compare(progress=TerminalProgress(), **options)

    def write_report() -> None:
        if report is not None:
            loaded.write_report(answer, report, calibration=calibration, backend=backend)

    write_answer(answer, json_to, partial(show_scenario_answer, explain=explain), write_report)
