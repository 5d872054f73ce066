"""``ringlab predict``: predict a scenario, also for several values of a key or several numbers of devices."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from collectives.errors import InputError
from collectives.units import count
from ringlab.commands.predicting.prediction import predict
from ringlab.session import Session, load_scenario
from ringlab.shared.options import (
    CalibrationOpt,
    JsonOpt,
    ReportOpt,
    ScenarioArg,
    SetOpt,
    SizeOptions,
    TraceOpt,
    drawing,
    option,
    with_groups,
)
from ringlab.shared.output import check_outputs, deliver
from ringlab.shared.progress import TerminalProgress, computing, draw_to
from ringlab.shared.ranges import parse_world_sizes
from scenarios.loader import devices_to_predict


@dataclass(frozen=True)
class PredictOptions:
    """The options of ``ringlab predict``."""

    calibration: CalibrationOpt = None
    trace: TraceOpt = None
    report: ReportOpt = None

    sweep: str | None = option(
        None, help="Predict for each value of a key: a doubling range (2..64) or a list (2,3,5).", metavar="KEY=A..B"
    )
    plot: Annotated[
        Path | None, drawing("a plot", "Plot the results of --sweep or --devices, as .png, .svg or .pdf.")
    ] = None
    devices: str | None = option(
        None,
        help="Predict throughput, step time, memory and cost of training on these numbers of devices.",
        metavar="1,2,4,8",
    )
    what_if: str | None = option(
        None,
        help="Repeat the --devices prediction for each value of a key, such as batch=16,32. "
        "Without --devices: 1, 2, 4 and 8 devices.",
        metavar="KEY=A,B",
    )


@with_groups
def command(
    scenario: ScenarioArg,
    options: PredictOptions,
    size: SizeOptions,
    json_to: JsonOpt = None,
    set_keys: SetOpt = None,
) -> None:
    """Predict the time of collectives and training steps, and the scaling efficiency.

    Press Ctrl-C to stop a sweep and keep the results so far.
    """
    overrides = (*(set_keys or ()), *size.overrides)
    session = Session(calibration=options.calibration, progress=TerminalProgress())
    if options.devices is not None or options.what_if is not None:
        if options.sweep is not None or options.report is not None:
            raise InputError("--sweep and --report cannot be combined with --devices; use --what-if to vary a key")
        if options.trace is not None:
            raise InputError(
                "--trace cannot be combined with --devices; trace your script with `ringlab virtual --trace FILE`"
            )
        if options.calibration is not None:
            raise InputError(
                "--calibration cannot be combined with --devices; set training.compute to use measured times"
            )
        _predict_devices(scenario, overrides, options, json_to)
    elif options.sweep is not None or options.plot is not None:
        if options.sweep is None:
            raise InputError(
                f"--plot {options.plot} requires --sweep or --devices; for example, --sweep cluster.hosts=2..64"
            )
        if options.trace is not None or options.report is not None:
            raise InputError("--trace and --report cannot be combined with --sweep; remove them")
        from ringlab.commands.predicting.predict_sweep import predict_sweep  # imports worker processes

        check_outputs(json_to, options.plot, reads=session.file)
        swept = predict_sweep(scenario, options.sweep, *overrides, calibration=session.file, progress=session.progress)
        deliver(swept, json_to, draw_to(swept, options.plot, json_to))
    elif options == PredictOptions() and (ranks := devices_to_predict(scenario, overrides)):
        _predict_devices(scenario, overrides, replace(options, devices=str(ranks)), json_to)
    else:
        _predict_once(scenario, overrides, session, options, json_to)


def _predict_devices(scenario: str, overrides: tuple[str, ...], options: PredictOptions, json_to: str | None) -> None:
    from ringlab.commands.predicting.predict_devices import predict_devices  # imports NCCL's model

    devices, what_if = "1,2,4,8" if options.devices is None else options.devices, options.what_if
    counts = parse_world_sizes(devices, "--devices", most=65_536)
    check_outputs(json_to, options.plot)
    on = count(counts[0], "device") if len(counts) == 1 else f"{len(counts)} numbers of devices"
    with computing(TerminalProgress(), f"predicting {scenario} on {on}") as tick:
        answer = predict_devices(scenario, counts, *overrides, what_if=what_if, tick=tick)
    deliver(answer, json_to, draw_to(answer, options.plot, json_to))


def _predict_once(
    name: str, overrides: tuple[str, ...], session: Session, options: PredictOptions, json_to: str | None
) -> None:
    scenario, writers = load_scenario(name, *overrides), list[Any]()
    check_outputs(json_to, options.trace, options.report, reads=session.file)
    if options.trace is not None:
        from ringlab.pictures.traces import check_traceable, write_run  # slow to import

        check_traceable(scenario)
        writers.append(partial(write_run, scenario, session, options.trace))
    if not session.is_calibrated(scenario):
        raise InputError(f"{name}: this machine is not calibrated for this scenario; run `ringlab calibrate {name}`")
    answer = predict(scenario, session)
    if options.report is not None:
        from ringlab.pictures.report import write_report

        writers.append(partial(write_report, answer, scenario, options.report, session))
    deliver(answer, json_to, *writers)
