"""The command ``ringlab run``."""

from ringlab.terminal.options import BackendOpt, CalibrationOpt, JsonOpt, ScenarioArg, SetOpt, TimeoutOpt, TraceOpt
from ringlab.terminal.output import write_answer
from ringlab.terminal.progress import TerminalProgress, is_first_rank


def run(
    scenario: ScenarioArg,
    backend: BackendOpt = "gloo",
    calibration: CalibrationOpt = None,
    timeout: TimeoutOpt = 600.0,
    trace: TraceOpt = None,
    json_to: JsonOpt = None,
    set_keys: SetOpt = None,
) -> None:
    """Run the scenario on real processes of this machine; also under torchrun."""
    from ringlab.scenario import load
    from ringlab.terminal.scenario_tables import show_scenario_answer

    answer = load(scenario, *(set_keys or ())).run(
        calibration=calibration, backend=backend, timeout=timeout, progress=TerminalProgress()
    )
    if trace is not None and answer.trace is not None and is_first_rank():
        answer.trace.write(trace)
    write_answer(answer, json_to, show_scenario_answer)
