"""Predict processes on this machine from calibrated message and compute times."""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property

from collectives.call import Array, CollectiveCall
from collectives.records.calibration import Calibration, cached_calibration
from collectives.records.trace import Trace
from collectives.training.workload import ComputePhases, Training
from simcomm.performance_models.measured_times import collective_from_calibration, training_from_calibration
from simcomm.performance_models.network_model import NetworkModel
from simcomm.performance_models.options import SimulationOptions
from simcomm.performance_models.performance_model import Alternatives, has_point


class MeasuredModel(NetworkModel):
    """The model of processes on this machine, which uses calibrated message times.

    It simulates messages instead if there are no such times, or if an engine or faults are requested.
    """

    @cached_property
    def message_costs(self) -> Calibration | None:
        """The calibration, or None if it has no message times or if the cluster has its own transport.

        Raise InputError if there is no calibration, or if it is for a different number of ranks.
        """
        if self.cluster.transport is not None:
            return None
        calibration = self.calibration or cached_calibration(self.cluster.world_size)
        self.cluster.calibrated_by(calibration)
        return calibration if calibration.message_classes or self.cluster.world_size == 1 else None

    def collective(
        self, call: CollectiveCall, options: SimulationOptions, buffers: Sequence[Array] | None = None
    ) -> Trace:
        if buffers is not None or options.need_messages or self.message_costs is None:
            return super().collective(call, options, buffers)
        return collective_from_calibration(call, self.cluster.calibrated_by(self.message_costs), self.message_costs)

    def sequential_steps(
        self, training: Training, compute: ComputePhases, steps: int, options: SimulationOptions
    ) -> Trace:
        if options.need_messages or self.message_costs is None:
            return super().sequential_steps(training, compute, steps, options)
        return training_from_calibration(
            training, self.cluster.calibrated_by(self.message_costs), self.message_costs, compute, steps
        )

    def bucket_seconds(self, training: Training) -> Callable[[int], float] | None:
        """Return a function from bucket bytes to seconds, or None for torch's DDP, whose buckets are calibrated."""
        return None if training.gradient_sync is None else super().bucket_seconds(training)

    def calls_to_measure(self, calls: Iterable[CollectiveCall]) -> list[CollectiveCall]:
        return [call for call in calls if call.algorithm.has_program and call.algorithm.is_decided]

    def is_calibrated_for(self, training: Training) -> bool:
        """Return whether compute is calibrated and, for gloo ranks with overlapping gradients, also the overlap."""
        calibration = self.calibration
        if calibration is not None and calibration.backend == "gloo" and calibration.ranks > 1 and training.overlaps:
            return super().is_calibrated_for(training) and has_point(calibration.overlap, training)
        return super().is_calibrated_for(training)

    def predicts_ddp(self) -> bool:
        return self.calibration is not None and bool(self.calibration.overlap)

    def alternatives(self) -> Alternatives:
        return Alternatives(() if self.calibration is None else tuple(self.calibration.parts), None)

    def needs_overlap_calibration(self, training: Training) -> bool:
        """Return True if torch's DDP synchronizes gradients, or if the training does not state compute times."""
        return training.gradient_sync is None or training.compute is None
