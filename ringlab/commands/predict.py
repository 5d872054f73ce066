"""The command ``ringlab predict``."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ringlab.shared.options import CalibrationOpt, ExplainOpt, JsonOpt, ScenarioArg, SetOpt, TraceOpt
from ringlab.shared.output import check_outputs, write_answer
from ringlab.shared.progress import TerminalProgress
from ringlab.shared.signals import INTERRUPTED
from ringlab.terminal.loading import load_scenario

if TYPE_CHECKING:
    from collectives.errors import InputError
    from ringlab.answers.devices import DevicesAnswer


def predict(
    scenario: ScenarioArg,
    engine: Annotated[
        str | None,
        typer.Option(
            metavar="simpy|compiled|approximate", help="What simulates; whichever suits the size unless said."
        ),
    ] = None,
    calibration: CalibrationOpt = None,
    trace: TraceOpt = None,
    report: Annotated[Path | None, typer.Option(metavar="FILE.html", help="Write a report with pictures.")] = None,
    explain: ExplainOpt = False,
    sweep: Annotated[
        str | None,
        typer.Option(metavar="KEY=A..B", help="Predict with each value of a key: a range that doubles, or a list."),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the sweep, or --devices: .png, .svg, .pdf.")
    ] = None,
    devices: Annotated[
        str | None,
        typer.Option(metavar="1,2,4,8", help="Predict the training on so many devices each: rate, step, memory, cost."),
    ] = None,
    what_if: Annotated[
        str | None,
        typer.Option(
            "--what-if",
            metavar="KEY=A,B",
            help="Vary bandwidth, batch, bucket, precision or a key, with --devices (1,2,4,8 unless said).",
        ),
    ] = None,
    json_to: JsonOpt = None,
    set_keys: SetOpt = None,
) -> None:
    """Simulate: times, algbw, busbw, training step by phase, scaling efficiency. ^C keeps what is done."""
    if devices is not None or what_if is not None:
        _check_devices(sweep, report, calibration, engine)
        _predict_devices(
            scenario=scenario,
            devices=devices,
            what_if=what_if,
            set_keys=tuple(set_keys or ()),
            json_to=json_to,
            plot=plot,
            trace=trace,
            explain=explain,
        )
        return
    if sweep is not None or plot is not None:
        _check_sweep(sweep, plot, trace, report, explain)
        _predict_sweep(scenario, sweep or "", tuple(set_keys or ()), calibration, engine, json_to, plot)
        return
    _predict_once(
        scenario=scenario,
        set_keys=tuple(set_keys or ()),
        calibration=calibration,
        engine=engine,
        json_to=json_to,
        trace=trace,
        report=report,
        explain=explain,
    )


def _predict_once(
    scenario: str,
    set_keys: tuple[str, ...],
    calibration: Path | None,
    engine: str | None,
    json_to: str | None,
    trace: Path | None,
    report: Path | None,
    explain: bool,
) -> None:
    from ringlab.shared.progress import computing
    from ringlab.terminal.calibration_offer import offer_calibration
    from ringlab.terminal.scenario_tables import show_scenario_answer

    loaded = load_scenario(scenario, *set_keys)
    if report is not None:
        from viz import check_file

        check_file(report, "a report")
    check_outputs(json_to, trace, report, reads=calibration)
    if trace is not None:
        from ringlab.answers.predicted_trace import check_traceable

        check_traceable(loaded)
    if calibration is None:
        offer_calibration(loaded, scenario)
    answer = loaded.predict(calibration, engine, TerminalProgress())

    def write_trace() -> None:
        if trace is not None and not answer.interrupted:
            with computing(TerminalProgress(), f"writing {trace}"):
                loaded.trace(calibration=calibration, engine=engine).write(trace)

    def write_report() -> None:
        if report is not None and not answer.interrupted:
            loaded.write_report(answer, report, calibration=calibration, progress=TerminalProgress())

    write_answer(answer, json_to, partial(show_scenario_answer, explain=explain), write_trace, write_report)
    if answer.interrupted:
        raise typer.Exit(INTERRUPTED)


def _check_devices(sweep: str | None, report: Path | None, calibration: Path | None, engine: str | None) -> None:
    """Raise InputError for options that do not go together."""
    from collectives.errors import InputError

    if sweep is not None or report is not None:
        raise InputError("--sweep and --report do not go with --devices; --what-if varies a key")
    if calibration is not None or engine is not None:
        raise InputError("--calibration and --engine do not go with --devices; training.compute says what is measured")


def _predict_devices(
    scenario: str,
    devices: str | None,
    what_if: str | None,
    set_keys: tuple[str, ...],
    json_to: str | None,
    plot: Path | None,
    trace: Path | None,
    explain: bool,
) -> None:
    from collectives.units import count
    from ringlab.answers.devices import may_have_timeline, predict_devices
    from ringlab.shared.progress import computing
    from ringlab.shared.ranges import parse_world_sizes
    from ringlab.terminal.devices_table import show_devices

    counts = parse_world_sizes("1,2,4,8" if devices is None else devices, "--devices", most=65_536)
    if plot is not None:
        from viz import check_file

        check_file(plot, "a scaling curve")
    check_outputs(json_to, plot, trace)
    if trace is not None and not may_have_timeline(scenario, counts, *set_keys, what_if=what_if):
        raise _no_timeline(trace)
    on = count(counts[0], "device") if len(counts) == 1 else f"{len(counts)} numbers of devices"
    with computing(TerminalProgress(), f"predicting {scenario} on {on}") as tick:
        answer = predict_devices(scenario, counts, *set_keys, what_if=what_if, tick=tick)
    writers = [partial(answer.draw, plot)] if plot is not None else []
    if trace is not None:
        writers.append(partial(_write_timeline, answer, trace))
    write_answer(answer, json_to, partial(show_devices, explain=explain), *writers)


def _write_timeline(answer: "DevicesAnswer", path: Path) -> None:
    """Write the last step as a Trace. Raise InputError where it has none."""
    if answer.trace is None:
        raise _no_timeline(path)
    answer.trace.write(path)


def _no_timeline(path: Path) -> "InputError":
    from collectives.errors import InputError

    return InputError(
        f"--trace {path}: of a mesh with neither a data axis nor a pipeline no timeline is made, as nothing goes on "
        "beside computing; give more devices with --devices, or training.parallelism.pipeline"
    )


def _check_sweep(sweep: str | None, plot: Path | None, trace: Path | None, report: Path | None, explain: bool) -> None:
    """Raise InputError for options that do not go together."""
    from collectives.errors import InputError

    if sweep is None:
        raise InputError(f"--plot {plot} draws a sweep: name a key and its values, --sweep cluster.hosts=2..64")
    if trace is not None or report is not None or explain:
        raise InputError("--trace, --report and --explain are about one prediction, --sweep is several; leave one out")


def _predict_sweep(
    scenario: str,
    sweep: str,
    set_keys: tuple[str, ...],
    calibration: Path | None,
    engine: str | None,
    json_to: str | None,
    plot: Path | None,
) -> None:
    from ringlab.answers.scenario_sweep import predict_sweep
    from ringlab.terminal.sweep_table import show_sweep

    if plot is not None:
        from viz import check_file

        check_file(plot, "a sweep")
    check_outputs(json_to, plot, reads=calibration)
    answer = predict_sweep(
        scenario, sweep, *set_keys, calibration=calibration, engine=engine, progress=TerminalProgress()
    )
    write_answer(answer, json_to, show_sweep, *([partial(answer.draw, plot)] if plot is not None else []))
    if answer.interrupted:
        raise typer.Exit(INTERRUPTED)
