"""Define the interface of all performance models, and select the model for a cluster."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import ClassVar, NamedTuple

from collectives.call import Array, CollectiveCall
from collectives.declaration import Algorithm
from collectives.errors import InputError
from collectives.quoting import quote
from collectives.records.calibration import Calibration, ComputePoint, OverlapPoint, check_calibration
from collectives.records.environment import threads_per_rank
from collectives.records.trace import Trace
from collectives.training.workload import ComputePhases, Training
from simcomm.cluster.cluster import Cluster
from simcomm.model.faults import NO_FAULTS
from simcomm.performance_models.estimator import Estimator
from simcomm.performance_models.measured_times import OverlapCalibration, train_overlapped
from simcomm.performance_models.options import TIMES_ONLY, SimulationOptions


class Alternatives(NamedTuple):
    """Alternative calibrations whose predictions show how uncertain a prediction is.

    Each of ``parts`` uses only some of the measured rounds. ``slower`` assumes slower cores, and is None except on
    emulated clusters, where only the speed of cores drifts.
    """

    parts: tuple[Calibration, ...]
    slower: Calibration | None


class Carrier(NamedTuple):
    """An algorithm whose messages are simulated for a workload. It runs ``times`` times per repetition."""

    algorithm: Algorithm
    root: int
    times: int  # per repetition


@dataclass(frozen=True)
class PerformanceModel(ABC):
    """A model that predicts the time of collectives and training steps on a cluster."""

    steps: ClassVar[int] = 3  # simulated training steps, all alike
    warm_up: ClassVar[int] = 0  # number of these steps that are not counted

    cluster: Cluster
    calibration: Calibration | None

    @abstractmethod
    def collective(
        self, call: CollectiveCall, options: SimulationOptions, buffers: Sequence[Array] | None = None
    ) -> Trace:
        """Return the trace of a collective. If ``buffers`` are given, run the collective on them in place.

        Raise InputError if the model does not support the options, and ProgramError if the program is invalid.
        """

    @abstractmethod
    def estimator(self, call: CollectiveCall) -> Estimator:
        """Return an estimator that quickly compares algorithms. Raise InputError if a needed calibration is missing."""

    @abstractmethod
    def sequential_steps(
        self, training: Training, compute: ComputePhases, steps: int, options: SimulationOptions
    ) -> Trace:
        """Return the trace of steps that synchronize gradients after backward.

        Raise InputError if the model does not support the sync, the engine or the faults.
        """

    def training_steps(
        self, training: Training, compute: ComputePhases, steps: int, options: SimulationOptions
    ) -> Trace:
        """Return the trace of training steps.

        Raise InputError if the model does not support the sync, the engine or the faults, or lacks the overlap
        calibration that it needs.
        """
        if not training.overlaps:
            return self.sequential_steps(training, compute, steps, options)
        carry, computed_by = self.bucket_seconds(training), self.measured_ranks(training)
        measured = OverlapCalibration(self.calibration, computed_by, self.needs_overlap_calibration(training))
        return train_overlapped(training, self.cluster, measured, compute, steps, carry)

    def check_training(self, training: Training, options: SimulationOptions) -> None:
        """Raise InputError if the model does not support the gradient sync, alone or with the engine and faults."""
        if training.overlaps:
            self.bucket_seconds(training)
        if self.has_no_messages(training):
            _check_no_messages(training, options)
        self.check_sync(training)

    def check_sync(self, training: Training) -> None:
        """Raise InputError if NCCL is to synchronize gradients on a cluster that does not use NCCL."""
        if training.gradient_sync is not None and training.program is None:
            raise InputError(
                f"gradient_sync 'nccl' needs a cluster with transport = \"nccl\"; {self.cluster.title} does not have it"
            )

    def has_no_messages(self, training: Training) -> bool:
        """Return whether the gradient sync is predicted by formula, without simulated messages."""
        return training.overlaps or training.program is None

    def carried(self, workload: CollectiveCall | Training) -> Carrier | None:
        """Return the algorithm whose messages are simulated for a workload, or None if bucket times are calibrated.

        The sync of a training run occurs once per bucket if it overlaps with backward, and otherwise once per step.
        """
        if isinstance(workload, CollectiveCall):
            return Carrier(workload.algorithm, workload.root, 1)
        algorithm = self.bucket_algorithm(workload)
        if algorithm is None:
            return None
        times = len(workload.fill_buckets(workload.gradients)) if workload.overlaps else self.steps
        return Carrier(algorithm, 0, times)

    def bucket_algorithm(self, training: Training) -> Algorithm | None:
        """Return the algorithm that reduces the gradients, or None for torch's DDP, whose buckets were measured."""
        return training.gradient_sync

    def predicts_ddp(self) -> bool:
        """Return whether this model can predict torch's DistributedDataParallel."""
        return False

    def alternatives(self) -> Alternatives:
        """Return alternative calibrations, used to estimate the uncertainty of predictions."""
        return Alternatives((), None)

    def caveats(self, algorithms: Sequence[Algorithm]) -> tuple[str, ...]:
        """Return notes about assumptions and limits that affect predictions of the given algorithms."""
        return ()

    def measured_ranks(self, training: Training) -> int:
        """Return the number of concurrent processes with which compute was measured."""
        return self.cluster.local_ranks

    def calls_to_measure(self, calls: Iterable[CollectiveCall]) -> list[CollectiveCall]:
        """Return those of ``calls`` that a calibration must measure at exactly their sizes."""
        return []

    def is_calibrated_for(self, training: Training) -> bool:
        """Return whether the calibration includes compute times for a training run."""
        return self.calibration is not None and has_point(self.calibration.compute, training)

    def needs_overlap_calibration(self, training: Training) -> bool:
        """Return whether a training run can be predicted only with a calibrated overlap slowdown."""
        return False

    def phases(self, training: Training) -> tuple[ComputePhases, ComputePhases]:
        """Return a step's compute times in two cases: all ranks of the machine run, or only one rank runs.

        Each rank uses the same number of threads in both cases. Raise InputError if compute is not calibrated.
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
                f"compute was not measured for {training.model} on {training.data_kind} with batch size "
                f"{training.batch_size} and {local} ranks of {threads} threads; run `ringlab calibrate SCENARIO`, or "
                "set [training.compute]"
            )
        return together.times(local / measured), alone

    def bucket_seconds(self, training: Training) -> Callable[[int], float] | None:
        """Return a function from bucket bytes to seconds, or None if the calibration has the times of buckets.

        Raise InputError for torch's DDP, whose overlap with backward must be measured.
        """
        sync = training.gradient_sync
        if sync is None:
            raise InputError(
                "gradient_sync 'ddp' is only supported on this machine and on emulated clusters; choose an algorithm "
                "such as 'ring'"
            )
        return lambda nbytes: self.collective(CollectiveCall(sync, nbytes // 4, op="mean"), TIMES_ONLY).elapsed


def has_point(points: Sequence[ComputePoint] | Sequence[OverlapPoint], training: Training) -> bool:
    """Return whether any measurement matches the training's model, dataset and batch size."""
    kind = training.model_kind, training.data_kind, training.batch_size
    return any((point.model, point.dataset, point.batch_size) == kind for point in points)


def _check_no_messages(training: Training, options: SimulationOptions) -> None:
    problem = f"gradient_sync {training.sync_name!r} is predicted by formula, without simulated messages, so it"
    if options.faults != NO_FAULTS:
        raise InputError(f"{problem} does not support faults; remove the faults, or use an algorithm such as ring")
    if options.engine is not None:
        raise InputError(
            f"{problem} does not use engine {quote(options.engine)}; omit the engine, or use an algorithm such as ring"
        )


MODELS = {
    "network": "NetworkModel",
    "measured": "MeasuredModel",
    "emulated": "EmulatedModel",
    "nccl": "NcclModel",
}


def performance_model(cluster: Cluster, calibration: Calibration | None = None) -> PerformanceModel:
    """Return the performance model of a cluster. Raise InputError if ``calibration`` is not a Calibration.

    By default, a model that requires a calibration uses the cached one.
    """
    name = cluster.performance_model
    make: Callable[..., PerformanceModel] = getattr(
        import_module(f"simcomm.performance_models.{name}_model"), MODELS[name]
    )
    return make(cluster, check_calibration(calibration))
