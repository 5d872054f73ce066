"""Times on a cluster that NCCL joins: what NCCL does itself by its model, programs over its messages simulated."""

from collections.abc import Callable, Sequence
from itertools import accumulate

from collectives.records.spans import Spans
from collectives.records.trace import Trace
from collectives.request import Array, Request
from collectives.workload import ComputePhases, Training
from simcomm.nccl.calibration import predict_calibrated
from simcomm.nccl.clusters import NcclCluster
from simcomm.nccl.predict import NcclPrediction, predict_seconds
from simcomm.time_models.network_model import NetworkModel
from simcomm.time_models.options import SimulationOptions
from simcomm.time_models.time_model import check_whole

ENGINE = "nccl model"  # in place of an engine


class NcclModel(NetworkModel):
    """NCCL's own collectives by its model, with an interval; any other algorithm as messages over its links."""

    cluster: NcclCluster

    def predict(self, request: Request) -> NcclPrediction:
        """Return what NCCL does with a request. Raise InputError."""
        settings = self.cluster.settings
        return predict_calibrated(self.cluster.system, request.spec.name, request.nbytes, settings=settings)

    def collective(self, request: Request, options: SimulationOptions, buffers: Sequence[Array] | None = None) -> Trace:
        if not request.algorithm.is_nccl:
            return super().collective(request, options, buffers)
        found = self.predict(request)
        facts = {"nbytes": float(request.nbytes), "time_min_s": found.seconds, "time_max_s": found.seconds}
        facts |= {"low_s": found.low, "high_s": found.high}
        hosts = list(self.cluster.hosts)
        title = f"{request.spec.name}/{request.algorithm.label}"
        return Trace(
            title,
            "predicted",
            self.cluster.world_size,
            found.seconds,
            nodes=hosts,
            hosts=hosts,
            facts=facts,
            engine=ENGINE,
            choice=describe_choice(found),
        )

    def check_training(self, training: Training, options: SimulationOptions) -> None:
        sync = training.gradient_sync
        if sync is None or training.overlaps or not sync.is_nccl:
            super().check_training(training, options)
        else:
            check_whole(training, options)

    def steps_in_turn(
        self, training: Training, compute: ComputePhases, steps: int, options: SimulationOptions
    ) -> Trace:
        sync = training.gradient_sync
        if sync is None or not sync.is_nccl:
            return super().steps_in_turn(training, compute, steps, options)
        seconds = self.all_reduce_seconds(training.gradient_bytes)
        lengths = {
            "forward": compute.forward, "backward": compute.backward, "sync": seconds, "optimizer": compute.optimizer
        }  # fmt: skip
        ends = list(accumulate(list(lengths.values()) * steps))
        phases = zip(list(lengths) * steps, [0.0, *ends], ends, strict=False)
        spans = Spans.of_all_ranks(
            self.cluster.world_size,
            ((name, number // len(lengths), begin, end) for number, (name, begin, end) in enumerate(phases)),
        )
        hosts = list(self.cluster.hosts)
        title = f"training/{training.sync_name}"
        return Trace(title, "predicted", self.cluster.world_size, ends[-1], spans=spans, nodes=hosts, hosts=hosts)

    def bucket_seconds(self, training: Training) -> Callable[[int], float] | None:
        sync = training.gradient_sync
        if sync is not None and sync.is_nccl:
            return self.all_reduce_seconds
        return super().bucket_seconds(training)

    def all_reduce_seconds(self, nbytes: int) -> float:
        """Return the seconds of NCCL's own all_reduce."""
        return float(predict_seconds(self.cluster.system, "all_reduce", [nbytes], settings=self.cluster.settings)[0])


def describe_choice(found: NcclPrediction) -> str:
    """Return algorithm, protocol and number of channels: ``tree/ll x2``; ``pairs`` where each rank sends to each."""
    return f"{found.algorithm}/{found.protocol} x{found.channels}" if found.candidates else found.algorithm
