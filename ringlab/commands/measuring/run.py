"""``ringlab run``: run the collectives and training runs of a scenario on real processes."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import realcomm
from collectives.call import CollectiveCall
from collectives.errors import InputError, RunFailed
from collectives.records.calibration import Calibration
from collectives.records.trace import Trace
from collectives.training.workload import RESUME_NEWEST, Training
from collectives.variables import is_first_rank
from realcomm.launching.launcher import check_launch
from realcomm.launching.torchrun import has_stale_store, ranks_started, spans_nodes
from realcomm.training.trainer import preload_for
from ringlab.emulated import emulated, on_emulated
from ringlab.session import Session, load_scenario, real_session
from ringlab.shared.answer import NOT_IN_JSON
from ringlab.shared.conclusions import conclude
from ringlab.shared.figures import Number, collective_figures, training_figures
from ringlab.shared.options import JsonOpt, RealOptions, ScenarioArg, SetOpt, TraceOpt, option, with_groups
from ringlab.shared.output import check_outputs, deliver, make_console
from ringlab.shared.progress import Progress
from ringlab.shared.scenario_answer import ScenarioAnswer
from ringlab.shared.workload import check_programs, leave_nccl_out, resolve_calls, resolve_training
from scenarios import LoadedScenario
from scenarios.loader import is_spread

if TYPE_CHECKING:
    from realcomm.launching.types import RankNetwork
    from realcomm.training.checkpoints import Start
    from realcomm.training.observing import Observer
    from realcomm.watching.watch import Watch


@dataclass(frozen=True)
class TrainingOptions:
    """The options of ``ringlab run`` for training runs."""

    resume: str | None = option(
        None, help="Resume a training from its newest checkpoint (auto) or from FILE.", metavar="auto|FILE"
    )
    elastic: bool = option(
        False, help="Under torchrun: use the number of ranks that torchrun started, not the scenario's."
    )
    log_dir: Path | None = option(None, help="Directory for training metrics and one log file per rank.", metavar="DIR")
    weights: Path | None = option(None, help="Write the trained weights, as a state_dict.", metavar="FILE.pt")

    def watch(self) -> "Watch | None":
        """Return an object that writes metrics and logs to ``--log-dir``, or None if the option is not set.

        Raise InputError if the directory cannot be used.
        """
        if self.log_dir is None:
            return None
        from realcomm.watching.watch import Watch  # imports torch

        watch = Watch(self.log_dir)
        watch.check(resumes=self.resume is not None)
        return watch


@with_groups
def command(
    scenario: ScenarioArg,
    real: RealOptions,
    training: TrainingOptions,
    *,
    trace: TraceOpt = None,
    json_to: JsonOpt = None,
    set_keys: SetOpt = None,
) -> None:
    """Run the collectives and training runs of a scenario on real processes. The command also works under torchrun."""
    changes, ranks = [*(set_keys or ())], ranks_started() if training.elastic else None
    changes += [] if ranks is None else [f"cluster.world_size={ranks}"]
    replicas_only = {"--emulate": real.emulate, "--calibration": real.calibration, "--resume": training.resume,
                     "--log-dir": training.log_dir}  # fmt: skip
    if has_parallelism(scenario, changes, replicas_only):
        from ringlab.commands.measuring.strategies import carry_out  # imports the planner

        carry_out(scenario, changes, real, json_to, predict=False, trace=trace, weights=training.weights)
        return
    loaded = load_scenario(scenario, *changes)
    check_outputs(json_to, trace, training.weights, reads=real.calibration)
    files = Kept(training.resume, training.watch(), training.weights)
    answer = run(loaded, real_session(real), files, emulate=real.emulate)
    writers = [partial(answer.traces[-1].write, trace)] if trace is not None and answer.traces else []
    deliver(answer, json_to, *writers)
    if files.watch is not None and is_first_rank():
        make_console(stderr=True).print(files.watch.describe(), soft_wrap=True)


def has_parallelism(scenario: str, changes: Sequence[str], replicas_only: Mapping[str, object]) -> bool:
    """Return whether a scenario has ``[training.parallelism]``. If so, reject set options in ``replicas_only``."""
    if not is_spread(scenario, changes):
        return False
    for name, value in replicas_only.items():
        if value:
            raise InputError(f"{name} cannot be combined with [training.parallelism]")
    return True


@dataclass(frozen=True, kw_only=True, repr=False)
class RunAnswer(ScenarioAnswer[Number]):
    """The result of ``ringlab run``: times measured on this machine."""

    kind: ClassVar[str] = "measurement"

    place: str = field(default="this machine", metadata=NOT_IN_JSON)
    emulated: bool | None = None  # whether the network of another cluster was emulated; None for this machine
    traces: tuple[Trace, ...] = field(default=(), compare=False, metadata=NOT_IN_JSON)  # at the largest size

    @property
    def trace(self) -> Trace | None:
        """The trace of the last algorithm at the largest size, or of the last training if there are no collectives."""
        return self.traces[-1] if self.traces else None

    def to_dict(self) -> dict[str, Any]:
        content = super().to_dict()
        del content["what_if"]
        return content


class Kept(NamedTuple):
    """The files of a training run: the checkpoint to resume from, and the metrics, logs and weights to write."""

    resume: str | Path | None = None  # a checkpoint, or "auto" for the newest complete one of each training
    watch: "Watch | None" = None  # writes metrics and logs
    weights: Path | None = None  # for the weights of a single training


class Work(NamedTuple):
    """The collectives and training runs of a scenario, with algorithms in place of ``auto``. Duplicates run once."""

    scenario: LoadedScenario
    calls: list[CollectiveCall]
    trainings: list[Training]

    @classmethod
    def of(cls, scenario: LoadedScenario, calibration: Calibration | None) -> "Work":
        """Return the work of a scenario. The calibration selects the algorithms for ``auto``.

        Raise ProgramError if an algorithm is incorrect.
        """
        calls = resolve_calls(scenario.collective, scenario.cluster, calibration)
        trainings = [resolve_training(training, scenario.cluster, calibration) for training in scenario.trainings]
        check_programs(scenario, calls, trainings)
        return cls(scenario, calls, trainings)

    @property
    def once(self) -> list[CollectiveCall]:
        return list(dict.fromkeys(self.calls))

    @property
    def jobs(self) -> list[Training]:
        return list(dict.fromkeys(self.trainings))

    def answer(self, measured: Mapping[CollectiveCall | Training, Trace]) -> RunAnswer:
        """Return the result of a run, given the measured trace of each collective and training."""
        cluster = self.scenario.cluster
        place, emulated = (cluster.title, None) if spans_nodes() else (cluster.place_of_run, cluster.is_built)
        collectives = [measured[call] for call in self.calls]
        trainings = [measured[training] for training in self.trainings]
        traces = list({id(trace): trace for trace in collectives or trainings[-1:]}.values())
        largest = max((trace.facts.get("nbytes", 0.0) for trace in traces), default=0.0)
        answer = RunAnswer(
            title=self.scenario.title,
            file=str(self.scenario.path),
            cluster=cluster.title,
            collectives=tuple(map(collective_figures, collectives)),
            training=tuple(map(training_figures, trainings, self.trainings)),
            place=place,
            emulated=emulated,
            traces=tuple(trace for trace in traces if trace.facts.get("nbytes", 0.0) == largest),
        )
        return replace(answer, conclusions=conclude(answer, self.scenario))


def run(scenario: LoadedScenario, session: Session, files: Kept, emulate: bool = False) -> RunAnswer:
    """Run a scenario on real processes: on this machine, on its emulated network, or on a launcher's nodes.

    A calibration selects the algorithms for ``auto``. Except under a launcher, a missing calibration is measured first.
    Raises InputError if the scenario cannot run here, and RunFailed if a rank fails.
    """
    cluster, progress = scenario.cluster, session.progress
    runnable = scenario if session.backend == "nccl" and not emulate else leave_nccl_out(scenario)
    check_launch(cluster.world_size, session.backend, session.timeout_s)
    if emulate:
        runnable = on_emulated(runnable)
        calibration = session.calibration_to_choose(runnable)
        with emulated(runnable.cluster, progress) as network:
            return measure(runnable, calibration, session, files, network)
    if spans_nodes(session.timeout_s):
        progress.note(f"warning: Ringlab assumes that the launcher's nodes are {cluster.title}")
        if has_stale_store():
            progress.note(
                "warning: after a restart, ranks may use old addresses; set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 for "
                "torchrun"
            )
    elif warning := cluster.warn_of_run(session.backend):
        progress.note(warning)
    if runnable != scenario:
        progress.note('warning: "nccl", NCCL\'s own choice of algorithms, is skipped, because gloo cannot run it')
    return measure(runnable, session.calibration_to_choose(runnable), session, files)


def measure(
    scenario: LoadedScenario,
    calibration: Calibration | None,
    session: Session,
    files: Kept,
    network: "RankNetwork | None" = None,
) -> RunAnswer:
    """Run the collectives and training runs of a scenario. ``network`` is the emulated network, if there is one.

    A training run is stopped if a step takes longer than the session's timeout. Raises RunFailed if a rank fails, and
    InputError if the scenario cannot run with ``files``. Raises ProgramError before the first measurement if an
    algorithm is incorrect.
    """
    work, progress, watch = Work.of(scenario, calibration), session.progress, files.watch
    _check_single(work.jobs, "--weights", files.weights)
    session.report_images(work.jobs)
    starts = _find_starts(work.jobs, scenario.cluster.world_size, files.resume, progress)
    options: dict[str, Any] = {"backend": session.backend, "timeout": session.timeout_s, "network": network}
    measured: dict[CollectiveCall | Training, Trace] = {}
    if watch is not None and not work.trainings:
        raise InputError("--log-dir requires a scenario with a [training] table")
    watched: AbstractContextManager[list[Observer]] = (
        nullcontext([]) if watch is None else watch.observing(resumes=files.resume is not None)
    )
    preload_for(work.jobs)  # before the first collective starts the server of all ranks
    with watched as observers:
        for call in work.once:
            with progress.task(f"measuring {call.algorithm.full_name}, {call.nbytes} bytes") as tick:
                measured[call] = realcomm.run(call, scenario.cluster, **options, progress=tick)
        for job, start in zip(work.jobs, starts, strict=True):
            start_options: dict[str, Any] = {"resume": start, "observers": observers, "weights_file": files.weights}
            try:
                with progress.task(f"training with {job.sync_name}") as tick:
                    measured[job] = realcomm.train(job, scenario.cluster, **options, **start_options, progress=tick)
            except RunFailed as error:
                if job.checkpoints is not None and is_first_rank():
                    from realcomm.training.checkpoints import newest_note  # imports torch

                    error.add_note(newest_note(job))
                raise
    return work.answer(measured)


def _find_starts(
    trainings: Sequence[Training], world_size: int, resume: str | Path | None, progress: Progress
) -> "list[Start | None]":
    if resume is not None and not trainings:
        raise InputError("--resume requires a scenario with a [training] table")
    if not trainings or (resume is None and trainings[0].checkpoints is None):
        return [None] * len(trainings)
    _check_single(trainings, "--resume", None if resume == RESUME_NEWEST else resume, "pass --resume auto, or ")
    from realcomm.training.checkpoints import find_start  # imports torch

    starts = [find_start(job, world_size, resume) for job in trainings]
    for start in starts:
        for note in start.notes:
            progress.note(note)
    return [*starts]


def _check_single(trainings: Sequence[Training], option: str, file: object, other: str = "") -> None:
    if file is None or len(trainings) == 1:
        return
    if not trainings:
        raise InputError(f"{option} requires a scenario with a [training] table")
    raise InputError(
        f"{option} {file} requires a single gradient sync, but the scenario trains with "
        f"{', '.join(job.sync_name for job in trainings)}; {other}select one with --set training.gradient_sync=NAME"
    )
