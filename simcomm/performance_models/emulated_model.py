"""Predict emulated clusters: simulate messages, with compute calibrated on this machine."""

from collections.abc import Callable

from collectives.call import CollectiveCall
from collectives.catalogue import find_algorithm
from collectives.declaration import GLOO, Algorithm
from collectives.records.calibration import SLOWER
from collectives.records.environment import cores, threads_per_rank
from collectives.training.workload import Training
from simcomm.performance_models.network_model import NetworkModel
from simcomm.performance_models.options import TIMES_ONLY
from simcomm.performance_models.performance_model import Alternatives


class EmulatedModel(NetworkModel):
    """The model of an emulated cluster, whose ranks share this machine's cores and do not run in lockstep."""

    steps, warm_up = 5, 1  # all ranks start the first step together, so it is not counted

    def bucket_seconds(self, training: Training) -> Callable[[int], float] | None:
        """Return a function from bucket bytes to seconds. For torch's DDP, this is the time of gloo's all_reduce."""
        if training.gradient_sync is not None:
            return super().bucket_seconds(training)
        gloo = self.bucket_algorithm(training)
        return lambda nbytes: self.collective(CollectiveCall(gloo, nbytes // 4), TIMES_ONLY).elapsed

    def bucket_algorithm(self, training: Training) -> Algorithm:
        """Return the algorithm that reduces the gradients. For torch's DDP, this is gloo's all_reduce."""
        return training.gradient_sync or find_algorithm(f"all_reduce/{GLOO}")

    def predicts_ddp(self) -> bool:
        return self.calibration is not None and bool(self.calibration.overlap)

    def alternatives(self) -> Alternatives:
        """Return the calibration's folds and a calibration with slower cores, or neither if there are no folds."""
        if self.calibration is None or not self.calibration.parts:
            return Alternatives((), None)
        return Alternatives(tuple(self.calibration.parts), self.calibration.with_slower_cores(SLOWER))

    def measured_ranks(self, training: Training) -> int:
        """Return the number of concurrent processes whose calibrated compute times are used for the local ranks.

        This is the number of local ranks if compute is calibrated for it. Otherwise, it is the largest smaller
        calibrated number that keeps all cores busy. Without such a number, it is the number of local ranks.
        """
        local, calibration = self.cluster.local_ranks, self.calibration
        threads = threads_per_rank(local)
        if calibration is None or calibration.compute_point(training, local, threads) is not None:
            return local
        candidates = [point.processes for point in calibration.compute if cores() <= point.processes < local]
        measured = [count for count in candidates if calibration.compute_point(training, count, threads) is not None]
        return max(measured, default=local)

    def shared_cores(self, training: Training) -> int | None:
        """Return the number of cores that ranks share, or None if compute times already account for the sharing."""
        if self.calibration is None or training.compute is not None:
            return None
        measured = self.measured_ranks(training)
        return measured if measured < self.cluster.local_ranks else None
