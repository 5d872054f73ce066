"""What every model of time answers, the trace of a collective and of training steps; and which model a cluster has."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import ClassVar, NamedTuple

from collectives.declaration import Algorithm
from collectives.errors import InputError
from collectives.quoting import quote
from collectives.records.calibration import Calibration, ComputePoint, OverlapPoint, check_calibration
from collectives.records.environment import cores, threads_per_rank
from collectives.records.trace import Trace
from collectives.request import Array, Request
from collectives.training.workload import ComputePhases, Training
from simcomm.cluster.cluster import Cluster
from simcomm.model.trouble import NO_TROUBLE
from simcomm.time_models.estimator import Estimator
from simcomm.time_models.hop_times import OverlapMeasured, train_overlapped
from simcomm.time_models.options import TIMES_ONLY, SimulationOptions


class Alternatives(NamedTuple):
    """Other calibrations of the same machine: its parts, and one with slower cores where only those drift."""

    parts: tuple[Calibration, ...]
    slower: Calibration | None


class Carried(NamedTuple):
    """What carries the bytes of a row: an algorithm whose messages are simulated, so often in a repetition."""

    algorithm: Algorithm
    root: int
    times: int


@dataclass(frozen=True)
class TimeModel(ABC):
    """How long a collective, and a training step, takes on a cluster."""

    steps: ClassVar[int] = 3  # of a training that show what all of them take: all are alike
    warm_up: ClassVar[int] = 0  # steps of these that do not count

    cluster: Cluster
    calibration: Calibration | None  # of this machine, where one was given

    @abstractmethod
    def collective(self, request: Request, options: SimulationOptions, buffers: Sequence[Array] | None = None) -> Trace:
        """Return the trace of one collective; ``buffers`` are reduced in place.

        Raises InputError, and ProgramError for an algorithm that cannot work.
        """

    @abstractmethod
    def estimator(self, request: Request) -> Estimator:
        """Return what estimates cheaply how long other algorithms take for a request. Raise InputError."""

    @abstractmethod
    def steps_in_turn(
        self, training: Training, compute: ComputePhases, steps: int, options: SimulationOptions
    ) -> Trace:
        """Return the trace of steps whose gradients travel when backward is through. Raise InputError."""

    def training_steps(
        self, training: Training, compute: ComputePhases, steps: int, options: SimulationOptions
    ) -> Trace:
        """Return the trace of training steps. Raise InputError."""
        if not training.overlaps:
            return self.steps_in_turn(training, compute, steps, options)
        carry, computed_by = self.bucket_seconds(training), self.measured_ranks(training)
        measured = OverlapMeasured(self.calibration, computed_by, self.needs_overlap(training))
        return train_overlapped(training, self.cluster, measured, compute, steps, carry)

    def check_training(self, training: Training, options: SimulationOptions) -> None:
        """Raise InputError for a sync that is not known here, and for trouble or an engine where it has no messages."""
        if training.overlaps:
            self.bucket_seconds(training)
        if self.is_whole(training):
            _check_whole(training, options)
        self.check_sync(training)

    def check_sync(self, training: Training) -> None:
        """Raise InputError for NCCL's own sync, which needs a cluster that NCCL joins."""
        if training.gradient_sync is not None and training.program is None:
            raise InputError(f"gradient_sync 'nccl' needs a cluster that NCCL joins, and {self.cluster.title} is none")

    def is_whole(self, training: Training) -> bool:
        """Return whether a training's sync is predicted as a whole, without messages that an engine simulates."""
        return training.overlaps or training.program is None

    def carried(self, asked: Request | Training) -> Carried | None:
        """Return what carries a row's bytes: a few steps' syncs, or each bucket once; None where no message does."""
        if isinstance(asked, Request):
            return Carried(asked.algorithm, asked.root, 1)
        algorithm = self.bucket_algorithm(asked)
        if algorithm is None:
            return None
        return Carried(algorithm, 0, len(asked.fill_buckets(asked.gradients)) if asked.overlaps else self.steps)

    def bucket_algorithm(self, training: Training) -> Algorithm | None:
        """Return the algorithm that carries a training's gradients; None where their times were measured."""
        return training.gradient_sync

    def knows_ddp(self) -> bool:
        """Return whether steps of torch's DistributedDataParallel can be predicted."""
        return False

    def alternatives(self) -> Alternatives:
        """Return the calibrations by which predictions are made once more, to see how sure they are."""
        return Alternatives((), None)

    def grounds(self, algorithms: Sequence[Algorithm]) -> tuple[str, ...]:
        """Return what a reader should know of the facts that predictions of these algorithms stand on."""
        return ()

    def measured_ranks(self, training: Training) -> int:
        """Return in how many processes at once the computing of the cluster's ranks was measured."""
        return self.cluster.local_ranks

    def requests_to_time(self, requests: Iterable[Request]) -> list[Request]:
        """Return those of the requests whose hops are timed here, at exactly their sizes."""
        return []

    def is_calibrated_for(self, training: Training) -> bool:
        """Return whether the calibration has all that computing in a training takes."""
        return self.calibration is not None and has_point(self.calibration.compute, training)

    def needs_overlap(self, training: Training) -> bool:
        """Return whether the overlap of a training has to be in the calibration."""
        return False

    def phases(self, training: Training) -> tuple[ComputePhases, ComputePhases]:
        """Return the phases of a step beside the machine's other ranks, and of one rank alone with as many threads.

        Raises InputError where the calibration has none.
        """
        if training.compute is not None:
            return training.compute, training.compute
        assert self.calibration is not None
        local, measured = self.cluster.local_ranks, self.measured_ranks(training)
        threads = threads_per_rank(local)
        together = self.calibration.phases(training, measured, threads)
        alone = self.calibration.phases(training, 1, threads)
        if together is None or alone is None:
            raise InputError(
                f"the calibration has no times of {training.model}, {training.data_kind}, batch size "
                f"{training.batch_size}, for {local} ranks of {threads} threads each on {cores()} cores; "
                "make them with `ringlab calibrate SCENARIO`, or give them as [training.compute]"
            )
        return together.times(local / measured), alone

    def bucket_seconds(self, training: Training) -> Callable[[int], float] | None:
        """Return what says how long a bucket of so many bytes takes by itself; None where that is measured.

        Raises InputError for torch's own sync, whose overlap is measured on this machine only.
        """
        sync = training.gradient_sync
        if sync is None:
            raise InputError(
                "gradient_sync 'ddp' is predicted for ranks of this machine only, whose overlap was measured, and on "
                "emulated clusters"
            )
        return lambda nbytes: self.collective(Request(sync, nbytes // 4, op="mean"), TIMES_ONLY).elapsed


def has_point(points: Sequence[ComputePoint] | Sequence[OverlapPoint], training: Training) -> bool:
    """Return whether one of the points measured is of a training's model, data set and batch size."""
    kind = training.model_kind, training.data_kind, training.batch_size
    return any((one.model, one.dataset, one.batch_size) == kind for one in points)


def _check_whole(training: Training, options: SimulationOptions) -> None:
    """Raise InputError for trouble or an engine, which need the messages of a sync that is predicted as a whole."""
    whole = f"gradient_sync {training.sync_name!r} is predicted as a whole, without messages that"
    if options.trouble != NO_TROUBLE:
        raise InputError(f"{whole} trouble could meet; leave the trouble out, or take a sync of messages, such as ring")
    if options.engine is not None:
        raise InputError(
            f"{whole} engine {quote(options.engine)} could simulate; leave the engine out, or take a sync of messages, "
            "such as ring"
        )


MODELS = {
    "network": "NetworkModel",
    "measured": "MeasuredModel",
    "emulated": "EmulatedModel",
    "nccl": "NcclModel",
}


def time_model(cluster: Cluster, calibration: Calibration | None = None) -> TimeModel:
    """Return what knows how long collectives and trainings take on a cluster. Raise InputError for no Calibration.

    Where one is needed and none is given, the cached one is taken.

    >>> import simcomm
    >>> type(time_model(simcomm.this_machine(2))).__name__
    'MeasuredModel'
    """
    name = cluster.time_model
    make: Callable[..., TimeModel] = getattr(import_module(f"simcomm.time_models.{name}_model"), MODELS[name])
    return make(cluster, check_calibration(calibration))
