"""The command ``ringlab compare``."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from ringlab.shared.options import (
    TIMEOUT_S,
    BackendOpt,
    CalibrationOpt,
    EmulateOpt,
    ExplainOpt,
    JsonOpt,
    ScenarioArg,
    SetOpt,
    TimeoutOpt,
)
from ringlab.shared.output import check_outputs, write_answer
from ringlab.shared.progress import TerminalProgress
from ringlab.terminal.loading import load_scenario


def compare(
    scenario: ScenarioArg,
    backend: BackendOpt = "gloo",
    calibration: CalibrationOpt = None,
    report: Annotated[Path | None, typer.Option(metavar="FILE.html", help="Write a report with pictures.")] = None,
    emulate: EmulateOpt = False,
    timeout: TimeoutOpt = TIMEOUT_S,
    explain: ExplainOpt = False,
    devices: Annotated[
        str | None,
        typer.Option(metavar="2,4,8", help="With --emulate: the trainings on so many hosts each, from --profile."),
    ] = None,
    profile: Annotated[
        Path | None, typer.Option(metavar="FILE.json", help="What `ringlab profile` says of one rank by itself.")
    ] = None,
    json_to: JsonOpt = None,
    set_keys: SetOpt = None,
) -> None:
    """Predict and run, and show the error of each prediction."""
    if devices is not None or profile is not None:
        from collectives.errors import InputError

        if devices is None or profile is None or not emulate:
            raise InputError("--devices, --profile and --emulate go together: give all three, as --devices 2,4,8")
        if report is not None or calibration is not None or backend != "gloo" or timeout != TIMEOUT_S:
            raise InputError("--report, --calibration, --backend and --timeout do not go with --devices")
        _compare_devices(scenario, devices, profile, tuple(set_keys or ()), json_to, explain)
        return
    from ringlab.terminal.scenario_tables import show_scenario_answer
    from viz import check_file

    loaded = load_scenario(scenario, *(set_keys or ()))
    if report is not None:
        check_file(report, "a report")
    check_outputs(json_to, report, reads=calibration)
    options: dict[str, Any] = {"calibration": calibration, "backend": backend, "timeout": timeout, "emulate": emulate}
    answer = loaded.compare(progress=TerminalProgress(), **options)

    def write_report() -> None:
        if report is not None:
            loaded.write_report(answer, report, calibration=calibration, backend=backend, progress=TerminalProgress())

    write_answer(answer, json_to, partial(show_scenario_answer, explain=explain), write_report)


def _compare_devices(
    scenario: str, devices: str, profile: Path, set_keys: tuple[str, ...], json_to: str | None, explain: bool
) -> None:
    """Compare trainings on several numbers of emulated hosts with what a profile of one rank predicts."""
    from ringlab.answers.profiled_rank import compare_devices
    from ringlab.shared.ranges import parse_world_sizes
    from ringlab.terminal.profiled_rank_table import show_profiled_rank

    counts = parse_world_sizes(devices, "--devices")
    check_outputs(json_to, reads=profile)
    answer = compare_devices(scenario, counts, *set_keys, profile=profile, progress=TerminalProgress())
    write_answer(answer, json_to, partial(show_profiled_rank, explain=explain))
