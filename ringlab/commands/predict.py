"""The command ``ringlab predict``."""

from typing import Annotated

import typer

from ringlab.terminal.options import CalibrationOpt, JsonOpt, ScenarioArg, SetOpt, TraceOpt


def predict(
    scenario: ScenarioArg,
    engine: Annotated[
        str | None, typer.Option(metavar="simpy|compiled", help="What simulates; whichever suits the size unless said.")
    ] = None,
    calibration: CalibrationOpt = None,
    trace: TraceOpt = None,
    json_to: JsonOpt = None,
    set_keys: SetOpt = None,
) -> None:
    """Simulate: times, algbw, busbw, training step by phase, scaling efficiency."""
    from ringlab.answers import answer, calibration_source
    from ringlab.terminal.output import finish
    from scenarios import load
    from simcomm.engine_choice import check_engine

    check_engine(engine)
    asked = load(scenario, set_keys or ())
    numbers = calibration_source.find(asked, calibration)
    found = answer.predict(asked, numbers, engine)
    if trace is not None:
        answer.one_trace(asked, numbers, None, None, engine).write(trace)
    finish(found, asked, json_to)
