"""``ringlab run``: a scenario on real processes, with or without its prediction beside."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from collectives.errors import InputError
from collectives.variables import is_first_rank
from realcomm.launching.launcher import check_launch
from realcomm.launching.torchrun import has_stale_store, ranks_started, spans_nodes
from ringlab.commands.measuring.compare import Comparison, check_comparable, run_beside_prediction
from ringlab.commands.measuring.measurement import Kept, RunAnswer, measure, with_counted_models
from ringlab.commands.predicting.prediction import Prediction
from ringlab.emulated import emulated, on_emulated
from ringlab.session import Session, load_scenario, real_session
from ringlab.shared.options import AnswerOptions, RealOptions, RunOptions, ScenarioArg, SetOpt, with_groups
from ringlab.shared.output import check_outputs, deliver, keep_broken_trace, make_console
from ringlab.shared.workload import leave_nccl_out
from ringlab.table import Line, print_parts
from scenarios import LoadedScenario
from scenarios.loader import is_spread

if TYPE_CHECKING:
    from realcomm.watching.watch import Watch


@dataclass(frozen=True)
class TrainingOptions:
    """How a training goes on from a checkpoint, and what is kept of it."""

    resume: Annotated[
        str | None,
        Option("--resume", metavar="auto|FILE", help="Resume training from the newest checkpoint (auto) or from FILE."),
    ] = None
    elastic: Annotated[
        bool,
        Option(
            "--elastic",
            help=("Under torchrun: use as many ranks as it started, even if the scenario has another number."),
        ),
    ] = False
    log_dir: Annotated[
        Path | None,
        Option("--log-dir", metavar="DIR", help="Directory for training metrics and one log file per rank."),
    ] = None
    tensorboard: Annotated[bool, Option("--tensorboard", help="Also write TensorBoard logs to --log-dir.")] = False
    profile: Annotated[
        str | None,
        Option(
            "--profile",
            metavar="STEPS",
            help="Also write a torch.profiler trace of these steps to --log-dir: 10 or 10-12.",
        ),
    ] = None

    weights: Annotated[
        Path | None, Option("--weights", metavar="FILE.pt", help="Write the trained weights, as a state_dict.")
    ] = None

    def watch(self) -> "Watch | None":
        """Return what is kept of trainings. Raise InputError for what cannot be kept, or nowhere."""
        if self.log_dir is None:
            for option, is_given in (("--tensorboard", self.tensorboard), ("--profile", self.profile is not None)):
                if is_given:
                    raise InputError(f"{option} requires --log-dir")
            return None
        from realcomm.watching.watch import Watch, parse_steps  # imports torch, which --help does without

        watch = Watch(self.log_dir, self.tensorboard, None if self.profile is None else parse_steps(self.profile))
        watch.check(resumes=self.resume is not None)
        return watch


@with_groups
def command(
    scenario: ScenarioArg,
    real: RealOptions,
    training: TrainingOptions,
    predict: Annotated[
        bool, Option("--predict", help="Show the prediction before the run, and compare it with the result afterwards.")
    ] = False,
    *,
    also: RunOptions,
    outputs: AnswerOptions,
    set_keys: SetOpt = None,
) -> None:
    """Run a scenario on real processes. Also works under torchrun."""
    changes, ranks = [*(set_keys or ())], ranks_started() if training.elastic else None
    changes += [] if ranks is None else [f"cluster.world_size={ranks}"]
    if is_spread(scenario, changes):
        for option, value in (("--emulate", real.emulate), ("--calibration", real.calibration),
                              ("--resume", training.resume), ("--log-dir", training.log_dir)):  # fmt: skip
            if value:
                raise InputError(f"{option} cannot be combined with [training.parallelism]")
        from ringlab.commands.measuring.strategies import carry_out  # others do without

        carry_out(scenario, changes, real, outputs, also, predict=predict, weights=training.weights)
        return
    if also.check:
        raise InputError("--check requires [training.parallelism]; for replicas, set check_every in [training]")
    loaded = load_scenario(scenario, *changes)
    check_outputs(outputs.json_to, also.trace, training.weights, reads=real.calibration)
    kept, session = Kept(training.resume, training.watch(), training.weights), real_session(real)
    with keep_broken_trace(also.trace):
        answer: RunAnswer | Comparison
        if predict and real.emulate:
            raise InputError("--predict cannot be combined with --emulate; use `ringlab compare SCENARIO --emulate`")
        if predict:
            show = partial(_show_prediction, quiet=outputs.json_to == "-")
            answer = run_next_to_prediction(loaded, show, session, kept)
        else:
            answer = run(loaded, session, kept, emulate=real.emulate)
    writers = [partial(answer.traces[-1].write, also.trace)] if also.trace is not None and answer.traces else []
    deliver(answer, outputs.json_to, *writers, explain=outputs.explain)
    if kept.watch is not None and is_first_rank():
        make_console(stderr=True).print(kept.watch.describe(), soft_wrap=True)


def _show_prediction(predicted: Prediction, quiet: bool) -> None:
    """Show a prediction before the run that it is of."""
    if is_first_rank() and not quiet:
        before, after = Line("Predicted:", "bold"), Line("\nMeasured, beside the prediction:", "bold")
        print_parts([before, *predicted.show(), after], make_console())


def run(scenario: LoadedScenario, session: Session, kept: Kept, emulate: bool = False) -> RunAnswer:
    """Run a scenario on real processes of this machine, or with ``emulate`` on its network, built here.

    The calibration is for algorithms named ``auto`` only, and made where it is missing. Raises InputError and
    RunFailed.
    """
    cluster, progress = scenario.cluster, session.progress
    runnable = scenario if session.backend == "nccl" and not emulate else leave_nccl_out(scenario)
    check_launch(cluster.world_size, session.backend, session.timeout_s)
    if emulate:
        runnable = on_emulated(runnable)
        found = session.calibration_to_choose(runnable)
        with emulated(runnable.cluster, progress) as network:
            return measure(runnable, found, session, kept, network)
    if spans_nodes(session.timeout_s):
        progress.note(f"warning: the nodes that the ranks were started on are taken for {cluster.title}")
        if has_stale_store():
            progress.note(
                "warning: after a restart ranks may look for others where they were before it; set "
                "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 where torchrun is started"
            )
    elif warning := cluster.warn_of_run(session.backend):
        progress.note(warning)
    if runnable != scenario:
        progress.note('warning: "nccl" is what NCCL itself does, which is left out, as gloo cannot run it')
    return measure(runnable, session.calibration_to_choose(runnable), session, kept)


def run_next_to_prediction(
    scenario: LoadedScenario, show: Callable[[Prediction], None], session: Session, kept: Kept
) -> Comparison:
    """Predict a scenario, ``show`` that, then run it as ``run`` does; return both side by side.

    Raises InputError, also for a cluster that is not this machine unless ranks were started on several nodes;
    RunFailed.
    """
    check_launch(scenario.cluster.world_size, session.backend, session.timeout_s)
    if not spans_nodes(session.timeout_s):
        check_comparable(scenario, session.backend)
    return run_beside_prediction(with_counted_models(scenario), session, kept, show)
