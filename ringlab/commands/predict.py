"""The command ``ringlab predict``."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from ringlab import INTERRUPTED
from ringlab.terminal.options import CalibrationOpt, ExplainOpt, JsonOpt, ScenarioArg, SetOpt, TraceOpt
from ringlab.terminal.output import check_outputs, write_answer
from ringlab.terminal.progress import TerminalProgress


def predict(
    scenario: ScenarioArg,
    engine: Annotated[
        str | None, typer.Option(metavar="simpy|compiled", help="What simulates; whichever suits the size unless said.")
    ] = None,
    calibration: CalibrationOpt = None,
    trace: TraceOpt = None,
    report: Annotated[Path | None, typer.Option(metavar="FILE.html", help="Write a report with pictures.")] = None,
    explain: ExplainOpt = False,
    json_to: JsonOpt = None,
    set_keys: SetOpt = None,
) -> None:
    """Simulate: times, algbw, busbw, training step by phase, scaling efficiency. ^C keeps what is done."""
    from ringlab.scenario import load
    from ringlab.terminal.calibration_offer import offer_calibration
    from ringlab.terminal.scenario_tables import show_scenario_answer

    loaded = load(scenario, *(set_keys or ()))
    if report is not None:
        from viz import check_file

        check_file(report, "a report")
    check_outputs(json_to, trace, report, reads=calibration)
    if calibration is None:
        offer_calibration(loaded, scenario)
    answer = loaded.predict(calibration, engine, TerminalProgress())

    def write_trace() -> None:
        if trace is not None and not answer.interrupted:
            loaded.trace(calibration=calibration, engine=engine).write(trace)

    def write_report() -> None:
        if report is not None and not answer.interrupted:
            loaded.write_report(answer, report, calibration=calibration)

    write_answer(answer, json_to, partial(show_scenario_answer, explain=explain), write_trace, write_report)
    if answer.interrupted:
        raise typer.Exit(INTERRUPTED)
