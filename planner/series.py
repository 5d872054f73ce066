"""Published series of data-parallel trainings as columns, a row for each point."""

from collections.abc import Sequence

from planner.columns import Columns, make_columns
from planner.gpus import Gpu
from planner.hosts import Host
from planner.mesh.interconnect import ScalingNode
from planner.scaling.descriptions import NEVER, Series

RATE_LOADERS = ("dali", "decode")
GB = 1e9


def host_of_node(node: ScalingNode, gpu: Gpu, paths: int = 1) -> Host:
    """Return a node of published series as a host."""
    busbw = tuple((count, rate * GB) for count, rate in sorted(node.busbw.items()))
    return Host(node.name, gpu, node.gpus, node.kind, node.cores, node.nic_GBps * GB, busbw, paths=paths)


def exchange_of(series: Series) -> str:
    """Return how a series exchanges gradients, by a name of ``EXCHANGES``."""
    parallelism = series.job.parallelism
    if parallelism.strategy == "parameter_server":
        return "server"
    return "none" if parallelism.sync_every == NEVER else "overlapped" if parallelism.overlap else "after"


def columns_of_series(series: Sequence[Series]) -> Columns:
    """Return the points of series as columns, series after series. Seconds of a sample are those of no series.

    >>> from planner.scaling.descriptions import read_series
    >>> one = read_series()[0]
    >>> columns_of_series([one]).gpus.tolist() == [point.gpus for point in one.points]
    True
    """
    hosts = [host_of_node(one.node, one.gpu, one.ps_paths) for one in series]
    rows = [(one, host, point) for one, host in zip(series, hosts, strict=True) for point in one.points]
    loaders = [one.job.loader if one.job.loader in RATE_LOADERS else "" for one, _, _ in rows]
    return make_columns(
        {
            "profile": [one.job.model for one, _, _ in rows],
            "host": [host for _, host, _ in rows],
            "gpus_used": [-(-point.gpus // point.nodes) for _, _, point in rows],
            "dp": [point.gpus for _, _, point in rows],
            "micro_batch": [one.job_on(point.gpus).batch for one, _, point in rows],
            "exchange": [exchange_of(one) for one, _, _ in rows],
            "bucket_mb": [one.job.parallelism.bucket_mb for one, _, _ in rows],
            "gradient_bytes": [one.job.parallelism.gradient_bytes or 4 for one, _, _ in rows],
            "loader": loaders,
            "variable": [one.job.variable_batches for one, _, _ in rows],
            "precision": "float32",
        },
        len(rows),
    )
