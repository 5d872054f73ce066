"""The command ``ringlab calibrate``."""

from typing import Annotated

import typer

from ringlab.terminal.options import BackendOpt, JsonOpt, SetOpt, TimeoutOpt
from ringlab.terminal.output import check_outputs, write_answer
from ringlab.terminal.progress import TerminalProgress


def calibrate(
    scenario: Annotated[
        str | None, typer.Argument(metavar="[SCENARIO]", help="Calibrate what this scenario needs.")
    ] = None,
    ranks: Annotated[int, typer.Option(min=1, metavar="N", help="Processes of this machine, without a scenario.")] = 2,
    backend: BackendOpt = "gloo",
    timeout: TimeoutOpt = 600.0,
    json_to: JsonOpt = None,
    set_keys: SetOpt = None,
) -> None:
    """Measure this machine's messages, reductions and training phases, and keep them for predictions."""
    from ringlab.answers import calibration_source
    from ringlab.scenario import load
    from ringlab.terminal.machine_tables import show_calibration

    progress = TerminalProgress()
    check_outputs(json_to)
    if scenario is None:
        answer = calibration_source.calibrate(ranks, backend=backend, timeout=timeout, progress=progress)
    else:
        loaded = load(scenario, *(set_keys or ()))
        answer = loaded.calibrate(ranks, backend=backend, timeout=timeout, progress=progress)
    write_answer(answer, json_to, show_calibration)
