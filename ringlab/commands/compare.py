"""The command ``ringlab compare``."""

from pathlib import Path
from typing import Annotated

import typer

from ringlab.terminal.options import BackendOpt, CalibrationOpt, JsonOpt, ScenarioArg, SetOpt, TimeoutOpt
from ringlab.terminal.progress import Progress, is_first_rank


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
    from collectives.errors import InputError
    from realcomm.launching.launcher import check_launch
    from ringlab.answers import answer, calibration_source
    from ringlab.terminal.output import finish
    from scenarios import load
    from simcomm.model.trouble import NO_TROUBLE

    asked = load(scenario, set_keys or ())
    if not asked.cluster.is_here:
        raise InputError(
            f"{asked.path}: cluster: {asked.cluster.title} is not this machine, so nothing of it can be measured; "
            'predict it, or compare preset = "this-machine" with it as a [[what_if]]'
        )
    if asked.trouble != NO_TROUBLE:
        raise InputError(
            f"{asked.path}: trouble: it cannot be brought about on this machine; "
            "leave [trouble] out, or predict it beside as [what_if.trouble]"
        )
    check_launch(asked.cluster.world_size, backend, timeout)
    progress = Progress()
    numbers = calibration_source.find_or_make(asked, calibration, timeout, progress)
    predicted = answer.predict(asked, numbers)
    measured, _ = answer.measure(asked, numbers, backend, timeout, progress)
    found = answer.compare(predicted, measured)
    finish(found, asked, json_to)
    if report is not None and is_first_rank():
        from ringlab.answers.report import write_report

        write_report(found, asked, numbers, report)
