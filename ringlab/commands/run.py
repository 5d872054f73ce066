"""The command ``ringlab run``."""

from functools import partial
from typing import Any

from ringlab.terminal.options import (
    BackendOpt,
    CalibrationOpt,
    EmulateOpt,
    ExplainOpt,
    JsonOpt,
    ResumeOpt,
    ScenarioArg,
    SetOpt,
    TimeoutOpt,
    TraceOpt,
)
from ringlab.terminal.output import check_outputs, keep_broken_trace, write_answer
from ringlab.terminal.progress import TerminalProgress


def run(
    scenario: ScenarioArg,
    backend: BackendOpt = "gloo",
    calibration: CalibrationOpt = None,
    emulate: EmulateOpt = False,
    timeout: TimeoutOpt = 600.0,
    resume: ResumeOpt = None,
    trace: TraceOpt = None,
    explain: ExplainOpt = False,
    json_to: JsonOpt = None,
    set_keys: SetOpt = None,
) -> None:
    """Run the scenario on real processes of this machine; also under torchrun."""
    from ringlab.scenario import load
    from ringlab.terminal.scenario_tables import show_scenario_answer

    loaded = load(scenario, *(set_keys or ()))
    check_outputs(json_to, trace, reads=calibration)
    options: dict[str, Any] = {"calibration": calibration, "backend": backend, "timeout": timeout}
    options |= {"emulate": emulate, "resume": resume}
    with keep_broken_trace(trace):
        answer = loaded.run(progress=TerminalProgress(), **options)

    def write_trace() -> None:
        if trace is not None and answer.trace is not None:
            answer.trace.write(trace)

    write_answer(answer, json_to, partial(show_scenario_answer, explain=explain), write_trace)
