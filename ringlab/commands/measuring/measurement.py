"""``RunAnswer``: a scenario run on real processes of this machine."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import realcomm
from collectives.call import CollectiveCall
from collectives.errors import InputError, RunFailed
from collectives.records.calibration import Calibration
from collectives.records.trace import Trace
from collectives.training.workload import RESUME_NEWEST, Training
from collectives.variables import is_first_rank
from realcomm.calibration.blocks import make_calibration
from realcomm.calibration.calibration import run_in_turns as launch_turns
from realcomm.launching.torchrun import spans_nodes
from realcomm.training.model_files import count_parameters
from realcomm.training.trainer import preload_for
from ringlab.session import Session
from ringlab.shared.answer import NOT_IN_JSON
from ringlab.shared.conclusions import conclude
from ringlab.shared.figures import Number, collective_figures, training_figures
from ringlab.shared.progress import Progress
from ringlab.shared.scenario_answer import ScenarioAnswer
from ringlab.shared.workload import check_programs, resolve_calls, resolve_training
from scenarios import LoadedScenario

if TYPE_CHECKING:
    from realcomm.launching.types import RankNetwork
    from realcomm.training.checkpoints import Start
    from realcomm.training.observing import Observer
    from realcomm.watching.watch import Watch

AGAIN_S = 30.0  # a comparison on a busy machine that took longer is not measured again


def gpu_names() -> list[str]:
    """Return this machine's GPUs as the driver names them."""
    import torch  # ranks on processors do without it

    return [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]


@dataclass(frozen=True, kw_only=True, repr=False)
class RunAnswer(ScenarioAnswer[Number]):
    """What ``run`` measured: times in seconds of this machine.

    ``traces`` are of the algorithms at the largest size, else of the last training; they are no part of the JSON.
    """

    kind: ClassVar[str] = "measurement"

    place: str = field(default="this machine", metadata=NOT_IN_JSON)  # where the figures are from
    emulated: bool | None = None  # of another cluster than this machine: whether its network was built here
    traces: tuple[Trace, ...] = field(default=(), compare=False, metadata=NOT_IN_JSON)

    @property
    def trace(self) -> Trace | None:
        """The trace of the last algorithm at the largest size, else of the last training."""
        return self.traces[-1] if self.traces else None

    def to_dict(self) -> dict[str, Any]:
        found = super().to_dict()
        del found["what_if"]  # is predicted only
        return found


class _ToMeasure(NamedTuple):
    """What is measured of a scenario, ``auto`` resolved; rows that are equal are one run."""

    scenario: LoadedScenario
    calls: list[CollectiveCall]
    trainings: list[Training]

    @property
    def once(self) -> list[CollectiveCall]:
        """The calls, each once."""
        return list(dict.fromkeys(self.calls))

    @property
    def jobs(self) -> list[Training]:
        """The trainings, each once."""
        return list(dict.fromkeys(self.trainings))

    def answer(self, measured: Mapping[CollectiveCall | Training, Trace]) -> RunAnswer:
        """Return the answer from the trace of each call and training."""
        cluster = self.scenario.cluster
        place, emulated = (cluster.title, None) if spans_nodes() else (cluster.place_of_run, cluster.is_built)
        collectives = [measured[one] for one in self.calls]
        trainings = [measured[one] for one in self.trainings]
        answer = RunAnswer(
            title=self.scenario.title,
            file=str(self.scenario.path),
            cluster=cluster.title,
            collectives=tuple(map(collective_figures, collectives)),
            training=tuple(map(training_figures, trainings, self.trainings)),
            place=place,
            emulated=emulated,
            traces=_of_the_largest(collectives or trainings[-1:]),
        )
        return replace(answer, **conclude(answer, self.scenario)._asdict())


def _find_work(scenario: LoadedScenario, calibration: Calibration | None) -> _ToMeasure:
    """Return what is measured; the calibration resolves ``auto``, as ``predict`` does with the same one."""
    calls = resolve_calls(scenario.collective, scenario.cluster, calibration)
    trainings = [resolve_training(training, scenario.cluster, calibration) for training in scenario.trainings]
    check_programs(scenario, calls, trainings)
    return _ToMeasure(scenario, calls, trainings)


class Kept(NamedTuple):
    """What trainings go on from, and what is kept of them.

    They go on from the checkpoint ``resume``, or with "auto" each from its newest whole one; ``watch`` says what is
    kept while they run, and what the only one has learned is written to ``weights``.
    """

    resume: str | Path | None = None
    watch: "Watch | None" = None
    weights: Path | None = None


def measure(
    scenario: LoadedScenario,
    calibration: Calibration | None,
    session: Session,
    kept: Kept,
    network: "RankNetwork | None" = None,
) -> RunAnswer:
    """Run a scenario on real processes of this machine; a training ends after the session's timeout without a step.

    The ranks meet on ``network``, if one is given: the scenario's cluster, emulated. Raises RunFailed, and ProgramError
    before anything is measured.
    """
    work, progress, watch = _find_work(scenario, calibration), session.progress, kept.watch
    _check_one(work.jobs, "--weights", kept.weights)
    tell_of_images(work.jobs, progress)
    starts = _find_starts(work.jobs, scenario.cluster.world_size, kept.resume, progress)
    options: dict[str, Any] = {"backend": session.backend, "timeout": session.timeout_s, "network": network}
    measured: dict[CollectiveCall | Training, Trace] = {}
    if watch is not None and not work.trainings:
        raise InputError("--log-dir requires a scenario with a training")
    watched: AbstractContextManager[list[Observer]] = (
        nullcontext([]) if watch is None else watch.observing(resumes=kept.resume is not None)
    )
    preload_for(work.jobs)  # the collectives before them start the server of all ranks
    with watched as observers:
        for call in work.once:
            with progress.task(f"measuring {call.algorithm.full_name}, {call.nbytes} bytes") as tick:
                measured[call] = realcomm.run(call, scenario.cluster, **options, progress=tick)
        for job, start in zip(work.jobs, starts, strict=True):
            given: dict[str, Any] = {"resume": start, "observers": observers, "weights_file": kept.weights}
            with _noting_how_it_goes_on(job), progress.task(f"training with {job.sync_name}") as tick:
                measured[job] = realcomm.train(job, scenario.cluster, **options, **given, progress=tick)
    return work.answer(measured)


@contextmanager
def _noting_how_it_goes_on(job: Training) -> Iterator[None]:
    """Within the context, add a note with the checkpoint to resume from to the failure of a training."""
    try:
        yield
    except RunFailed as error:
        if job.checkpoints is not None and is_first_rank():
            from realcomm.training.checkpoints import newest_note  # imports torch, which --help does without

            error.add_note(newest_note(job))
        raise


def _find_starts(
    trainings: Sequence[Training], world_size: int, resume: str | Path | None, progress: Progress
) -> "list[Start | None]":
    """Return where each training starts, and say so. Raise InputError if one cannot start there."""
    if resume is not None and not trainings:
        raise InputError("--resume requires a scenario with a training")
    if not trainings or (resume is None and trainings[0].checkpoints is None):
        return [None] * len(trainings)
    _check_one(trainings, "--resume", None if resume == RESUME_NEWEST else resume, "take --resume auto, or ")
    from realcomm.training.checkpoints import find_start  # imports torch, which --help does without

    starts = [find_start(job, world_size, resume) for job in trainings]
    for start in starts:
        for note in start.notes:
            progress.note(note)
    return [*starts]


def _check_one(trainings: Sequence[Training], option: str, file: object, other: str = "") -> None:
    """Raise InputError where a file of one training is given and the scenario has none, or several."""
    if file is None or len(trainings) == 1:
        return
    names = ", ".join(job.sync_name for job in trainings)
    if not trainings:
        raise InputError(f"{option} requires a scenario with a training")
    raise InputError(
        f"{option} {file} supports a single training, but the scenario has one for each of "
        f"{names}; {other}choose one with --set training.gradient_sync=NAME"
    )


def tell_of_images(trainings: Sequence[Training], progress: Progress) -> None:
    """Say what is to be known of the images before a run. Raise InputError where they are not there."""
    if any(job.dataset == "cifar10" for job in trainings):
        from realcomm.training.datasets import describe_images  # imports torch

        for note in describe_images(trainings[0]):  # all of a scenario have the same
            progress.note(note)


def with_counted_models(scenario: LoadedScenario) -> LoadedScenario:
    """Return a scenario to be predicted and run, with the parameters of a user's model counted. Raise InputError."""
    return replace(scenario, trainings=tuple(count_parameters(training) for training in scenario.trainings))


def measure_in_turns(
    scenario: LoadedScenario, calibration: Calibration | None, session: Session
) -> tuple[RunAnswer, Calibration]:
    """Run a scenario in turns with calibrating; return what was measured and the calibration, which shares no number.

    The calibration given resolves ``auto``. The session's timeout is of the whole launch. Raises RunFailed, and
    ProgramError before anything is measured.
    """
    work = _find_work(scenario, calibration)
    tell_of_images(work.jobs, session.progress)
    with session.progress.task("calibrating and running in turns") as tick:
        turns = launch_turns(
            work.once,
            work.jobs,
            scenario.cluster,
            backend=session.backend,
            timeout=session.timeout_s,
            progress=tick,
        )
    measured: dict[CollectiveCall | Training, Trace] = {}
    measured |= zip([*work.once, *work.jobs], [*turns.collectives, *turns.trainings], strict=True)
    return work.answer(measured), make_calibration(turns.calibration, turns.setting)


def measure_when_free(
    measure: Callable[[], tuple[RunAnswer, Calibration]], progress: Progress
) -> tuple[RunAnswer, Calibration]:
    """Return what ``measure`` does; where the machine was busy, and it took seconds only, the better of two times."""
    begun = time.monotonic()
    first = measure()
    load = first[1].load
    if load is None or not load.is_busy or time.monotonic() - begun > AGAIN_S:
        return first
    progress.note(f"{load.describe()}: measuring once more")
    second = measure()
    return min(second, first, key=lambda found: found[1].load.others + found[1].load.steal if found[1].load else 0.0)


def _of_the_largest(traces: Sequence[Trace]) -> tuple[Trace, ...]:
    """Return the traces of the largest size, each once."""
    most = max((trace.facts.get("nbytes", 0.0) for trace in traces), default=0.0)
    once = {id(trace): trace for trace in traces}.values()
    return tuple(trace for trace in once if trace.facts.get("nbytes", 0.0) == most)
