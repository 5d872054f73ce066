"""The command ``ringlab run``."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collectives.variables import is_first_rank
from ringlab.shared.console import make_console
from ringlab.shared.options import (
    TIMEOUT_S,
    BackendOpt,
    CalibrationOpt,
    ElasticOpt,
    EmulateOpt,
    ExplainOpt,
    JsonOpt,
    LogDirOpt,
    PredictOpt,
    ProfileOpt,
    ResumeOpt,
    ScenarioArg,
    SetOpt,
    TensorBoardOpt,
    TimeoutOpt,
    TraceOpt,
)
from ringlab.shared.output import check_outputs, keep_broken_trace, write_answer
from ringlab.shared.progress import TerminalProgress
from ringlab.terminal.loading import load_scenario

if TYPE_CHECKING:
    from realcomm.watching.watch import Watch
    from ringlab.answers.comparison import Comparison
    from ringlab.answers.prediction import Prediction
    from ringlab.answers.real_run import RunAnswer


def run(
    scenario: ScenarioArg,
    backend: BackendOpt = "gloo",
    calibration: CalibrationOpt = None,
    emulate: EmulateOpt = False,
    timeout: TimeoutOpt = TIMEOUT_S,
    resume: ResumeOpt = None,
    elastic: ElasticOpt = False,
    log_dir: LogDirOpt = None,
    tensorboard: TensorBoardOpt = False,
    profile: ProfileOpt = None,
    predict: PredictOpt = False,
    trace: TraceOpt = None,
    explain: ExplainOpt = False,
    json_to: JsonOpt = None,
    set_keys: SetOpt = None,
) -> None:
    """Run the scenario on real processes of this machine; also under torchrun."""
    from ringlab.terminal.scenario_tables import show_scenario_answer

    loaded = load_scenario(scenario, *(set_keys or ()), *(_as_many_ranks_as_there_are() if elastic else ()))
    check_outputs(json_to, trace, reads=calibration)
    watch = _watch(log_dir, tensorboard, profile, resume)
    options: dict[str, Any] = {"calibration": calibration, "backend": backend, "timeout": timeout, "resume": resume}
    options |= {"watch": watch, "progress": TerminalProgress()}
    with keep_broken_trace(trace):
        answer: RunAnswer | Comparison
        if predict:
            _refuse_emulated(emulate)
            show = partial(_show_prediction, quiet=json_to == "-")
            answer = loaded.run_beside_prediction(show, **options)
        else:
            answer = loaded.run(**options, emulate=emulate)

    def write_trace() -> None:
        if trace is not None and answer.traces:
            answer.traces[-1].write(trace)

    write_answer(answer, json_to, partial(show_scenario_answer, explain=explain), write_trace)
    if watch is not None and is_first_rank():
        make_console(stderr=True).print(watch.describe(), soft_wrap=True)


def _as_many_ranks_as_there_are() -> list[str]:
    """Return the change of a scenario that has as many ranks as torchrun started; none elsewhere."""
    from realcomm.launching.torchrun import ranks_started

    ranks = ranks_started()
    return [] if ranks is None else [f"cluster.world_size={ranks}"]


def _watch(log_dir: Path | None, tensorboard: bool, profile: str | None, resume: str | None) -> "Watch | None":
    """Return what is kept of trainings. Raise InputError for what cannot be kept, or nowhere."""
    from collectives.errors import InputError

    if log_dir is None:
        for option, is_given in (("--tensorboard", tensorboard), ("--profile", profile is not None)):
            if is_given:
                raise InputError(f"{option} needs a folder to write to: give --log-dir too")
        return None
    from realcomm.watching.profiling import parse_steps  # torch comes with it
    from realcomm.watching.watch import Watch

    watch = Watch(log_dir, tensorboard, None if profile is None else parse_steps(profile))
    watch.check(resumes=resume is not None)
    return watch


def _refuse_emulated(emulate: bool) -> None:
    from collectives.errors import InputError

    if emulate:
        raise InputError("--predict does not go with --emulate; `ringlab compare SCENARIO --emulate` does both")


def _show_prediction(predicted: "Prediction", quiet: bool) -> None:
    """Show a prediction before the run that it is of."""
    from ringlab.terminal.scenario_tables import show_scenario_answer

    if is_first_rank() and not quiet:
        console = make_console()
        console.print("Predicted:", style="bold")
        show_scenario_answer(predicted, console)
        console.print("\nMeasured, beside the prediction:", style="bold")
