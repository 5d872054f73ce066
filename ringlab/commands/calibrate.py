"""The command ``ringlab calibrate``."""

from pathlib import Path
from typing import Annotated, Any

import typer

from ringlab.session import Session
from ringlab.shared.loading import load_scenario
from ringlab.shared.options import TIMEOUT_S, BackendOpt, JsonOpt, SetOpt, TimeoutOpt
from ringlab.shared.output import check_outputs, write_answer
from ringlab.shared.progress import TerminalProgress


def calibrate(
    scenario: Annotated[
        str | None, typer.Argument(metavar="[SCENARIO]", help="Calibrate what this scenario needs.")
    ] = None,
    ranks: Annotated[int, typer.Option(min=1, metavar="N", help="Processes of this machine, without a scenario.")] = 2,
    backend: BackendOpt = "gloo",
    nccl_tests: Annotated[
        Path | None,
        typer.Option("--nccl-tests", metavar="FILE", help="Adapt NCCL's predictions to your nccl-tests output."),
    ] = None,
    system: Annotated[
        str | None, typer.Option(metavar="NAME", help="The machine that it was measured on; else by its GPU's name.")
    ] = None,
    collective: Annotated[
        str | None, typer.Option(metavar="NAME", help="What was measured, where the output of nccl-tests is too old.")
    ] = None,
    accept_noise: Annotated[
        bool, typer.Option("--accept-noise", help="Keep also times that contradict each other.")
    ] = False,
    timeout: TimeoutOpt = TIMEOUT_S,
    json_to: JsonOpt = None,
    set_keys: SetOpt = None,
) -> None:
    """Measure this machine's messages, reductions and training phases, and keep them; or read nccl-tests' output."""
    from collectives.errors import InputError
    from ringlab.answers import calibration
    from ringlab.terminal.machine_tables import show_calibration

    progress = TerminalProgress()
    check_outputs(json_to)
    if nccl_tests is not None:
        _adapt_nccl(nccl_tests, scenario, system, collective, set_keys or [], json_to)
        return
    if system is not None or collective is not None:
        raise InputError("--system and --collective say what --nccl-tests FILE measured, and no such file is given")
    options: dict[str, Any] = {
        "backend": backend, "timeout": timeout, "progress": progress, "accept_noise": accept_noise,
    }  # fmt: skip
    if scenario is None:
        answer = calibration.calibrate(ranks, **options)
    else:
        loaded = load_scenario(scenario, *(set_keys or ()))
        session = Session(backend=backend, timeout_s=timeout, progress=progress)
        answer = calibration.CalibrationAnswer(*session.calibrate_for(loaded, ranks, accept_noise))
    write_answer(answer, json_to, show_calibration)


def _adapt_nccl(
    file: Path, scenario: str | None, system: str | None, collective: str | None, keys: list[str], json_to: str | None
) -> None:
    """Keep what nccl-tests measured of the scenario's system, or of the one that the options describe."""
    from collectives.errors import InputError
    from ringlab.answers.nccl_calibration import calibrate_nccl
    from ringlab.terminal.nccl_tables import show_nccl_calibration

    if scenario is not None and system is not None:
        raise InputError("the scenario names a system, and so does --system; give one of them")
    loaded = load_scenario(scenario, *keys) if scenario is not None else None
    answer = calibrate_nccl(file, loaded, system, keys if loaded is None else (), collective)
    write_answer(answer, json_to, show_nccl_calibration)
