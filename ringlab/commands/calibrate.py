"""The command ``ringlab calibrate``."""

from typing import Annotated

import typer

from ringlab.terminal.options import JsonOpt, SetOpt, TimeoutOpt
from ringlab.terminal.output import give
from ringlab.terminal.progress import Progress


def calibrate(
    scenario: Annotated[
        str | None, typer.Argument(metavar="[SCENARIO]", help="Calibrate what this scenario needs.")
    ] = None,
    ranks: Annotated[int, typer.Option(min=1, metavar="N", help="Processes of this machine, without a scenario.")] = 2,
    timeout: TimeoutOpt = 600.0,
    json_to: JsonOpt = None,
    set_keys: SetOpt = None,
) -> None:
    """Measure this machine's messages, reductions and training phases, and keep them for predictions."""
    from dataclasses import asdict

    from collectives.records.calibration import cache_file
    from ringlab.answers import calibration_source
    from ringlab.terminal.tables import show_calibration
    from scenarios import load

    asked = load(scenario, set_keys or ()) if scenario is not None else None
    ranks = (calibration_source.needed_ranks(asked) or ranks) if asked else ranks
    trainings = list(asked.trainings) if asked else []
    found = calibration_source.make(ranks, trainings, timeout, Progress())
    answer = {"kind": "calibration", "file": str(cache_file(ranks)), **asdict(found)}
    give(answer, json_to, lambda console: show_calibration(found, cache_file(ranks), console))
