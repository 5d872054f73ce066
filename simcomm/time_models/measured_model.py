"""Times of processes of this machine, from the measured times of its hops and phases."""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property

from collectives.records.calibration import Calibration, cached_calibration
from collectives.records.trace import Trace
from collectives.request import Array, Request
from collectives.training.workload import ComputePhases, Training
from simcomm.time_models.hop_times import run_by_hops, train_by_hops
from simcomm.time_models.network_model import NetworkModel
from simcomm.time_models.options import SimulationOptions
from simcomm.time_models.time_model import Alternatives, has_point


class MeasuredModel(NetworkModel):
    """Hops as they were measured; where messages are asked for, or no hop was timed, messages through its memory."""

    @cached_property
    def hops(self) -> Calibration | None:
        """The calibration whose hops are taken; None where it has none, or the cluster has a transport already.

        Raises InputError where no calibration is there, or it is of other ranks.
        """
        if self.cluster.transport is not None:
            return None
        found = self.calibration or cached_calibration(self.cluster.world_size)
        self.cluster.calibrated_by(found)
        return found if found.hops or self.cluster.world_size == 1 else None

    def collective(self, request: Request, options: SimulationOptions, buffers: Sequence[Array] | None = None) -> Trace:
        if buffers is not None or options.need_messages or self.hops is None:
            return super().collective(request, options, buffers)
        return run_by_hops(request, self.cluster.calibrated_by(self.hops), self.hops)

    def steps_in_turn(
        self, training: Training, compute: ComputePhases, steps: int, options: SimulationOptions
    ) -> Trace:
        if options.need_messages or self.hops is None:
            return super().steps_in_turn(training, compute, steps, options)
        return train_by_hops(training, self.cluster.calibrated_by(self.hops), self.hops, compute, steps)

    def bucket_seconds(self, training: Training) -> Callable[[int], float] | None:
        """Return what says how long a bucket takes; None for torch's own sync, whose buckets were measured here."""
        return None if training.gradient_sync is None else super().bucket_seconds(training)

    def requests_to_time(self, requests: Iterable[Request]) -> list[Request]:
        return [one for one in requests if one.algorithm.has_program and one.algorithm.is_decided]

    def is_calibrated_for(self, training: Training) -> bool:
        """Return whether the phases are known and, of what gloo carries meanwhile, what that takes from backward."""
        found = self.calibration
        if found is not None and found.backend == "gloo" and found.ranks > 1 and training.overlaps:
            return super().is_calibrated_for(training) and has_point(found.overlap, training)
        return super().is_calibrated_for(training)

    def knows_ddp(self) -> bool:
        return self.calibration is not None and bool(self.calibration.overlap)

    def alternatives(self) -> Alternatives:
        return Alternatives(() if self.calibration is None else tuple(self.calibration.parts), None)

    def needs_overlap(self, training: Training) -> bool:
        """Return whether the overlap has to be in the calibration: of torch's own sync, and beside computing."""
        return training.gradient_sync is None or training.compute is None
