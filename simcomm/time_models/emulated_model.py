"""Times of processes of this machine on a network that is built for them: messages simulated, computing measured."""

from collections.abc import Callable

from collectives.catalogue import find_algorithm
from collectives.declaration import GLOO, Algorithm
from collectives.records.calibration import SLOWER
from collectives.records.environment import cores, threads_per_rank
from collectives.request import Request
from collectives.training.workload import Training
from simcomm.time_models.network_model import NetworkModel
from simcomm.time_models.options import TIMES_ONLY
from simcomm.time_models.time_model import Alternatives


class EmulatedModel(NetworkModel):
    """Ranks that share this machine's cores; each goes on when it is through, so that steps differ."""

    steps, warm_up = 5, 1  # in the first one all ranks begin at once

    def bucket_seconds(self, training: Training) -> Callable[[int], float] | None:
        """Return what says how long a bucket takes: torch's own sync leaves it to gloo's all_reduce."""
        if training.gradient_sync is not None:
            return super().bucket_seconds(training)
        gloo = self.bucket_algorithm(training)
        return lambda nbytes: self.collective(Request(gloo, nbytes // 4), TIMES_ONLY).elapsed

    def bucket_algorithm(self, training: Training) -> Algorithm:
        """Return the algorithm that carries a training's gradients: of torch's own sync gloo's all_reduce."""
        return training.gradient_sync or find_algorithm(f"all_reduce/{GLOO}")

    def knows_ddp(self) -> bool:
        return self.calibration is not None and bool(self.calibration.overlap)

    def alternatives(self) -> Alternatives:
        """Return the calibrations by which predictions are made once more: links do not drift as cores do."""
        if self.calibration is None or not self.calibration.parts:
            return Alternatives((), None)
        return Alternatives(tuple(self.calibration.parts), self.calibration.with_slower_cores(SLOWER))

    def measured_ranks(self, training: Training) -> int:
        """Return in how many processes at once the computing of the ranks was measured.

        That may be fewer than the cluster has ranks, if they keep all cores busy with one thread each: more of them
        take turns.
        """
        local, found = self.cluster.local_ranks, self.calibration
        threads = threads_per_rank(local)
        if found is None or found.compute_point(training, local, threads) is not None:
            return local
        fewer = [point.processes for point in found.compute if cores() <= point.processes < local]
        known = [number for number in fewer if found.compute_point(training, number, threads) is not None]
        return max(known, default=local)

    def shared_cores(self, training: Training) -> int | None:
        """Return how many cores the ranks take turns on; None where each rank's computing was measured, or is given."""
        if self.calibration is None or training.compute is not None:
            return None
        measured = self.measured_ranks(training)
        return measured if measured < self.cluster.local_ranks else None
