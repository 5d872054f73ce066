"""Times on a cluster that NCCL joins: what NCCL does itself by its model, programs over its messages simulated."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate

from collectives.declaration import Algorithm
from collectives.records.spans import Spans
from collectives.records.trace import Trace
from collectives.request import Array, Request
from collectives.training.workload import ComputePhases, Training
from simcomm.nccl.clusters import NcclCluster, notes_of_programs
from simcomm.nccl.communicator import make_communicator
from simcomm.nccl.measured.calibration import predict_calibrated
from simcomm.nccl.predict import NcclPrediction, notes_of_settings, predict_seconds
from simcomm.time_models.network_model import NetworkModel
from simcomm.time_models.options import SimulationOptions
from simcomm.time_models.time_model import Carried

ENGINE = "nccl model"  # in place of an engine


class NcclModel(NetworkModel):
    """NCCL's own collectives by its model, with an interval; any other algorithm as messages over its links."""

    cluster: NcclCluster

    def predict(self, request: Request) -> NcclPrediction:
        """Return what NCCL does with a request. Raise InputError."""
        settings = self.cluster.settings
        return predict_calibrated(self.cluster.system, request.spec.name, request.nbytes, settings=settings)

    def collective(self, request: Request, options: SimulationOptions, buffers: Sequence[Array] | None = None) -> Trace:
        if not _is_own(request.algorithm):
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

    def check_sync(self, training: Training) -> None:
        """Accept every sync."""

    def carried(self, asked: Request | Training) -> Carried | None:
        own = asked.algorithm if isinstance(asked, Request) else asked.gradient_sync
        return None if _is_own(own) else super().carried(asked)

    def grounds(self, algorithms: Sequence[Algorithm]) -> tuple[str, ...]:
        """Return what was assumed, what settings do to NCCL's own collectives, and what programs do not share."""
        cluster, own = self.cluster, next((one for one in algorithms if _is_own(one)), None)
        free = replace(cluster.settings, algo=None, proto=None)  # what they force may leave nothing for this collective
        notes = [*cluster.assumed, *predict_calibrated(cluster.system, "all_reduce", 1024, settings=free).notes]
        if own is not None:
            notes += notes_of_settings(make_communicator(cluster.system, cluster.settings), own.spec.name)
        return (*notes, *(() if all(map(_is_own, algorithms)) else notes_of_programs(cluster)))

    def steps_in_turn(
        self, training: Training, compute: ComputePhases, steps: int, options: SimulationOptions
    ) -> Trace:
        if not _is_own(training.gradient_sync):
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
        return self.all_reduce_seconds if _is_own(training.gradient_sync) else super().bucket_seconds(training)

    def all_reduce_seconds(self, nbytes: int) -> float:
        """Return the seconds of NCCL's own all_reduce."""
        return float(predict_seconds(self.cluster.system, "all_reduce", [nbytes], settings=self.cluster.settings)[0])


def _is_own(algorithm: Algorithm | None) -> bool:
    """Return whether an algorithm stands for what NCCL itself does."""
    return algorithm is not None and not algorithm.has_program


def describe_choice(found: NcclPrediction) -> str:
    """Return algorithm, protocol and number of channels: ``tree/ll x2``; ``pairs`` where each rank sends to each."""
    return f"{found.algorithm}/{found.protocol} x{found.channels}" if found.candidates else found.algorithm
