"""``ringlab predict``: a scenario, a sweep of one of its keys, or its training on several numbers of devices."""

import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from collectives.errors import InputError
from ringlab.commands.predicting.prediction import predict
from ringlab.session import Session, load_scenario
from ringlab.shared.options import CalibrationOpt, ExplainOpt, JsonOpt, ScenarioArg, SetOpt, TraceOpt, with_groups
from ringlab.shared.output import Outputs, check_outputs, deliver
from ringlab.shared.progress import TerminalProgress
from scenarios import LoadedScenario


@dataclass(frozen=True)
class OneOptions:
    """How a scenario is simulated, and what is written of one prediction."""

    engine: Annotated[
        str | None,
        typer.Option(
            metavar="simpy|compiled|approximate", help="What simulates; whichever suits the size unless said."
        ),
    ] = None
    calibration: CalibrationOpt = None
    trace: TraceOpt = None
    report: Annotated[Path | None, typer.Option(metavar="FILE.html", help="Write a report with pictures.")] = None
    explain: ExplainOpt = False


@dataclass(frozen=True)
class SeveralOptions:
    """Several predictions: with each value of a key, or on each number of devices."""

    sweep: Annotated[
        str | None,
        typer.Option(metavar="KEY=A..B", help="Predict with each value of a key: a range that doubles, or a list."),
    ] = None
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the sweep, or --devices: .png, .svg, .pdf.")
    ] = None
    devices: Annotated[
        str | None,
        typer.Option(metavar="1,2,4,8", help="Predict the training on so many devices each: rate, step, memory, cost."),
    ] = None
    framework: Annotated[
        str | None, typer.Option(metavar="NAME", help="What trains a language model: torchtitan, megatron, ...")
    ] = None
    what_if: Annotated[
        str | None,
        typer.Option(
            "--what-if",
            metavar="KEY=A,B",
            help="Vary bandwidth, batch, bucket, precision or a key, with --devices (1,2,4,8 unless said).",
        ),
    ] = None


@with_groups
def command(
    scenario: ScenarioArg,
    one: OneOptions,
    several: SeveralOptions,
    json_to: JsonOpt = None,
    set_keys: SetOpt = None,
) -> None:
    """Simulate: times, algbw, busbw, training step by phase, scaling efficiency. ^C keeps what is done."""
    overrides = tuple(set_keys or ())
    if several.framework is not None:
        if several.devices is None and several.what_if is None:
            raise InputError("--framework is of language models on many devices: give --devices too, as 8,64")
        overrides += (f"training.framework={several.framework}",)
    session = Session(calibration=one.calibration, engine=one.engine, progress=TerminalProgress())
    if several.devices is not None or several.what_if is not None:
        if several.sweep is not None or one.report is not None:
            raise InputError("--sweep and --report do not go with --devices; --what-if varies a key")
        if one.calibration is not None or one.engine is not None:
            raise InputError(
                "--calibration and --engine do not go with --devices; training.compute says what is measured"
            )
        from ringlab.commands.predicting.predict_devices import (
            command as predict_devices,  # others do without NCCL's model
        )

        counts = "1,2,4,8" if several.devices is None else several.devices
        outputs = Outputs(json_to, several.plot, one.trace, one.explain)
        predict_devices(scenario, overrides, counts, several.what_if, outputs)
    elif several.sweep is not None or several.plot is not None:
        if several.sweep is None:
            raise InputError(
                f"--plot {several.plot} draws a sweep: name a key and its values, --sweep cluster.hosts=2..64"
            )
        if one.trace is not None or one.report is not None or one.explain:
            raise InputError(
                "--trace, --report and --explain are about one prediction, --sweep is several; leave one out"
            )
        from ringlab.commands.predicting.predict_sweep import (
            command as predict_sweep,  # one prediction does without processes
        )

        predict_sweep(scenario, overrides, several.sweep, session, Outputs(json_to, several.plot))
    else:
        _predict_once(scenario, overrides, session, Outputs(json_to, one.report, one.trace, one.explain))


def _predict_once(name: str, overrides: tuple[str, ...], session: Session, outputs: Outputs) -> None:
    """Predict a scenario, show the answer, and write what was asked for."""
    scenario = load_scenario(name, *overrides)
    _, report, trace, _ = outputs
    writers = list[Any]()
    if report is not None:
        import viz  # a prediction does without what draws

        viz.check_file(report, "a report")
    check_outputs(outputs.json_to, trace, report, reads=session.file)
    if trace is not None:
        from ringlab.pictures.traces import check_traceable, write_run  # a table of times does without

        check_traceable(scenario)
        writers.append(partial(write_run, scenario, session, trace))
    if session.calibration is None:
        _offer_calibration(scenario, name, session)
    answer = predict(scenario, session)
    if report is not None:
        from ringlab.pictures.report import write_report

        writers.append(partial(write_report, answer, scenario, report, session))
    deliver(answer, outputs.json_to, *(() if answer.interrupted else writers), explain=outputs.explain)


def _offer_calibration(scenario: LoadedScenario, name: str, session: Session) -> None:
    """Calibrate what the scenario needs and lacks, if a person at the terminal agrees.

    A machine that is not calm is said to be so, and its calibration used all the same: one command is enough. Raises
    InputError, which names that command, where nobody is there to ask or the answer is no.
    """
    if session.is_calibrated(scenario):
        return
    missing = f"{name}: this machine is not calibrated for what this scenario needs"
    asked = f"{missing}. It takes from half a minute to a few. Now?"
    if sys.stdin.isatty() and sys.stderr.isatty() and typer.confirm(asked, default=True, err=True):
        session.calibrate_for(scenario, accept_noise=True)
        return
    raise InputError(f"{missing}; `ringlab calibrate {name}` does it")
