"""Predict clusters that use NCCL: its built-in collectives by formula, and other programs by simulation."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate

from collectives.call import Array, CollectiveCall
from collectives.declaration import Algorithm
from collectives.errors import InputError
from collectives.records.spans import Spans
from collectives.records.trace import Trace
from collectives.training.workload import ComputePhases, Training
from simcomm.model.faults import NO_FAULTS
from simcomm.nccl.clusters import NcclCluster, notes_of_programs
from simcomm.nccl.communicator import make_communicator
from simcomm.nccl.measured.calibration import predict_calibrated
from simcomm.nccl.predict import NcclPrediction, notes_of_settings, predict_seconds
from simcomm.performance_models.network_model import NetworkModel
from simcomm.performance_models.options import SimulationOptions
from simcomm.performance_models.performance_model import Carrier

ENGINE = "nccl model"  # reported as the engine of a trace


class NcclModel(NetworkModel):
    """The model of clusters with NCCL. It predicts NCCL's own collectives with intervals, and simulates others."""

    cluster: NcclCluster

    def __post_init__(self) -> None:
        self.cluster.check_modeled()

    def predict(self, call: CollectiveCall) -> NcclPrediction:
        """Return the prediction of NCCL's collective for a call. Raise InputError if the model does not support it."""
        settings = self.cluster.settings
        return predict_calibrated(self.cluster.system, call.spec.name, call.nbytes, settings=settings)

    def collective(
        self, call: CollectiveCall, options: SimulationOptions, buffers: Sequence[Array] | None = None
    ) -> Trace:
        if not _is_own(call.algorithm):
            return super().collective(call, options, buffers)
        unused = {"engine": options.engine, "faults": options.faults != NO_FAULTS, "buffers": buffers is not None}
        for name, is_set in unused.items():
            if is_set:
                raise InputError(f"{call.algorithm.full_name}: NCCL's model does not support {name}; remove {name}")
        prediction = self.predict(call)
        facts = {"nbytes": float(call.nbytes), "time_min_s": prediction.seconds, "time_max_s": prediction.seconds}
        facts |= {"low_s": prediction.low, "high_s": prediction.high}
        hosts = list(self.cluster.hosts)
        title = f"{call.spec.name}/{call.algorithm.label}"
        return Trace(
            title,
            "predicted",
            self.cluster.world_size,
            prediction.seconds,
            nodes=hosts,
            hosts=hosts,
            facts=facts,
            engine=ENGINE,
            choice=describe_choice(prediction),
        )

    def check_sync(self, training: Training) -> None:
        """Do nothing, because this cluster supports every gradient sync, including NCCL's."""

    def carried(self, workload: CollectiveCall | Training) -> Carrier | None:
        algorithm = workload.algorithm if isinstance(workload, CollectiveCall) else workload.gradient_sync
        return None if _is_own(algorithm) else super().carried(workload)

    def caveats(self, algorithms: Sequence[Algorithm]) -> tuple[str, ...]:
        """Return notes about assumptions, about effects of NCCL settings, and about limits of simulated programs."""
        cluster, nccl_algorithm = self.cluster, next(filter(_is_own, algorithms), None)
        free = replace(cluster.settings, algo=None, proto=None)  # all_reduce may not support a forced choice
        notes = [*cluster.assumed, *predict_calibrated(cluster.system, "all_reduce", 1024, settings=free).notes]
        if nccl_algorithm is not None:
            notes += notes_of_settings(make_communicator(cluster.system, cluster.settings), nccl_algorithm.spec.name)
        return (*notes, *(() if all(map(_is_own, algorithms)) else notes_of_programs(cluster)))

    def sequential_steps(
        self, training: Training, compute: ComputePhases, steps: int, options: SimulationOptions
    ) -> Trace:
        if not _is_own(training.gradient_sync):
            return super().sequential_steps(training, compute, steps, options)
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
        """Return the time of NCCL's all_reduce of ``nbytes`` bytes, in seconds."""
        return float(predict_seconds(self.cluster.system, "all_reduce", [nbytes], settings=self.cluster.settings)[0])


def _is_own(algorithm: Algorithm | None) -> bool:
    return algorithm is not None and not algorithm.has_program


def describe_choice(prediction: NcclPrediction) -> str:
    """Return NCCL's choice as text such as ``tree/ll x2``: algorithm, protocol and number of channels.

    If NCCL chooses no algorithm, return ``mpi`` for ranks on CPUs, and ``pairs`` (sends and receives) for GPUs.
    """
    return (
        f"{prediction.algorithm}/{prediction.protocol} x{prediction.channels}"
        if prediction.candidates
        else prediction.algorithm
    )
