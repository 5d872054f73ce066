"""The command ``ringlab run``."""

from ringlab.terminal.options import BackendOpt, CalibrationOpt, JsonOpt, ScenarioArg, SetOpt, TimeoutOpt, TraceOpt
from ringlab.terminal.progress import Progress, is_first_rank


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
    from realcomm.launching.launcher import check_launch
    from ringlab.answers import answer, calibration_source
    from ringlab.terminal.output import finish
    from scenarios import load

    asked = load(scenario, set_keys or ())
    check_launch(asked.cluster.world_size, backend, timeout)
    progress = Progress()
    if not asked.cluster.is_here:
        progress.console.print(
            f"warning: {asked.cluster.title} is not this machine; its {asked.cluster.world_size} ranks run here, "
            "over this machine's memory",
            markup=False,
        )
    numbers = calibration_source.to_choose(asked, calibration, timeout, progress)
    found, measured = answer.measure(asked, numbers, backend, timeout, progress)
    if trace is not None and measured is not None and is_first_rank():
        measured.write(trace)
    finish(found, asked, json_to)
