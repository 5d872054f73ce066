"""The figures of what NCCL itself does, from its model."""

from dataclasses import replace

from collectives.costs.bounds import bus_factor
from collectives.request import Request
from ringlab.answers.figures import CollectiveFigures, Number
from simcomm.cluster.cluster import Cluster
from simcomm.nccl.calibration import predict_calibrated
from simcomm.nccl.clusters import NcclCluster, notes_of_programs
from simcomm.nccl.communicator import make_communicator
from simcomm.nccl.predict import NcclPrediction, notes_of_settings

MODEL = "nccl model"  # in place of an engine


def predict_request(request: Request, cluster: NcclCluster) -> NcclPrediction:
    """Return what NCCL does with a request on a cluster. Raise InputError."""
    return predict_calibrated(cluster.system, request.spec.name, request.nbytes, settings=cluster.settings)


def nccl_figures(request: Request, cluster: NcclCluster) -> CollectiveFigures[Number]:
    """Return the figures of a request that NCCL carries out by itself. Raise InputError."""
    found = predict_request(request, cluster)
    algbw = request.nbytes / found.seconds / 1e9
    return CollectiveFigures(
        collective=request.spec.name,
        algorithm=request.algorithm.label,
        world_size=cluster.world_size,
        bytes=request.nbytes,
        time_s=found.seconds,
        time_min_s=found.seconds,
        time_max_s=found.seconds,
        algbw_GBps=algbw,
        busbw_GBps=algbw * bus_factor(request.spec.name, cluster.world_size),
        engine=MODEL,
        interval_s=(found.low, found.high),
        choice=describe_choice(found),
    )


def describe_choice(found: NcclPrediction) -> str:
    """Return algorithm, protocol and number of channels: ``tree/ll x2``; ``pairs`` where each rank sends to each."""
    return f"{found.algorithm}/{found.protocol} x{found.channels}" if found.candidates else found.algorithm


def grounds(cluster: Cluster, collective: str | None = None, *, has_programs: bool = False) -> tuple[str, ...]:
    """Return what a reader should know of the facts that predictions of NCCL stand on; nothing of other clusters.

    ``collective``: what NCCL itself carries out, if anything; ``has_programs``: whether programs over its send and
    receive are predicted too.

    >>> from simcomm.nccl.clusters import nccl_cluster
    >>> from simcomm.nccl.descriptions import describe_system
    >>> grounds(nccl_cluster(describe_system("mine", {"nodes": 1, "gpus": 2, "gpu": "A100 SXM", "nccl": "2.21"})))
    ('procs is not stated: taken as one process for all GPUs of a host',)
    """
    if not isinstance(cluster, NcclCluster):
        return ()
    free = replace(cluster.settings, algo=None, proto=None)  # what they force may leave nothing for this collective
    notes = [*cluster.assumed, *predict_calibrated(cluster.system, "all_reduce", 1024, settings=free).notes]
    if collective is not None:
        notes += notes_of_settings(make_communicator(cluster.system, cluster.settings), collective)
    return (*notes, *(notes_of_programs(cluster) if has_programs else ()))
