"""Times of processes of this machine, from the measured times of its hops and phases."""

from collections.abc import Callable, Sequence
from functools import cached_property

from collectives.records.calibration import Calibration
from collectives.records.trace import Trace
from collectives.request import Array, Request
from collectives.workload import ComputePhases, Training
from simcomm.cluster.calibrated import hop_calibration, with_calibration
from simcomm.hop_times import run_by_hops
from simcomm.hop_training import train_by_hops
from simcomm.time_models.network_model import NetworkModel
from simcomm.time_models.options import SimulationOptions
from simcomm.time_models.time_model import Alternatives


class MeasuredModel(NetworkModel):
    """Hops as they were measured; where messages are asked for, or no hop was timed, messages through its memory."""

    @cached_property
    def hops(self) -> Calibration | None:
        """The calibration whose hops are taken. Raises InputError where none is there, or it is of other ranks."""
        return hop_calibration(self.cluster, self.calibration)

    def collective(self, request: Request, options: SimulationOptions, buffers: Sequence[Array] | None = None) -> Trace:
        if buffers is not None or options.need_messages or self.hops is None:
            return super().collective(request, options, buffers)
        return run_by_hops(request, with_calibration(self.cluster, self.hops), self.hops)

    def steps_in_turn(
        self, training: Training, compute: ComputePhases, steps: int, options: SimulationOptions
    ) -> Trace:
        if options.need_messages or self.hops is None:
            return super().steps_in_turn(training, compute, steps, options)
        return train_by_hops(training, with_calibration(self.cluster, self.hops), self.hops, compute, steps)

    def bucket_seconds(self, training: Training) -> Callable[[int], float] | None:
        """Return what says how long a bucket takes; None for torch's own sync, whose buckets were measured here."""
        return None if training.gradient_sync is None else super().bucket_seconds(training)

    def knows_ddp(self) -> bool:
        return self.calibration is not None and bool(self.calibration.overlap)

    def alternatives(self) -> Alternatives:
        return Alternatives(() if self.calibration is None else tuple(self.calibration.parts), None)

    def needs_overlap(self, training: Training) -> bool:
        """Return whether the overlap has to be in the calibration: of torch's own sync, and beside computing."""
        return training.gradient_sync is None or training.compute is None
