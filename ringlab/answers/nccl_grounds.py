"""The figures of what NCCL itself does, from its model."""

from dataclasses import replace

from simcomm.cluster.cluster import Cluster
from simcomm.nccl.calibration import predict_calibrated
from simcomm.nccl.clusters import NcclCluster, notes_of_programs
from simcomm.nccl.communicator import make_communicator
from simcomm.nccl.predict import notes_of_settings


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
