"""Published runs of language models, and a user's own, as columns."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import inf
from typing import Any

from planner.columns import Columns, make_columns
from planner.gpus import find_gpu
from planner.hosts import CORES, Host, host_of_preset
from planner.jobs import DIMENSIONS

SAME = (
    "dp", "tp", "cp", "pp", "vp", "ep", "sharding", "sequence_parallel", "async_tp", "recompute", "micro_batch",
    "precision", "framework", "optimizer", "attention", "lora", "frozen_bits", "offload", "gpu", "schedule",
)  # fmt: skip
PRESETS = {
    "A100 80GB SXM": "dgx-a100", "H100 SXM": "dgx-h100", "H200 SXM": "dgx-h200", "B200": "dgx-b200",
    "B300": "p6-b300.48xlarge",
}  # fmt: skip
CLUSTERS = {"ultrascale": "p5.48xlarge"}  # as the source describes it: H100 over EFA
NVLINK_SHARE = 0.76  # of a data sheet's NVLink, where NCCL's model has no such machine
RUN_BUCKETS_MB = 40.0  # of frameworks that train language models
GB = 1e9


@lru_cache(maxsize=256)
def host_of_run(source: str, gpu: str, node_gpus: int, nic_gbps: float) -> Host:
    """Return the host of a run; ``nic_gbps`` are GB/s of a GPU.

    >>> host_of_run("", "H100", 8, 50.0).nic, host_of_run("", "L40S", 8, 5.0).system
    (400000000000.0, None)
    """
    if source in CLUSTERS:
        return host_of_preset(CLUSTERS[source], gpu)
    found, nic = find_gpu(gpu), nic_gbps * GB * node_gpus
    if found.name in PRESETS and node_gpus == 8:
        return host_of_preset(PRESETS[found.name], gpu, nic)
    peer = NVLINK_SHARE * found.peer_rate
    return Host(f"{gpu} x {node_gpus}", gpu, node_gpus, "nvlink", CORES * node_gpus, nic, peer=peer)


def columns_of_runs(runs: Sequence[Mapping[str, Any]]) -> Columns:
    """Return runs, described as in ``meshes.csv``, as columns."""
    table: dict[str, Any] = {name: [run[name] for run in runs] for name in (*DIMENSIONS, *SAME)}
    return make_columns(
        {
            **table,
            "host": [host_of_run(one["source"], one["gpu"], one["node_gpus"], one["nic_gbps"]) for one in runs],
            "count": [one["grad_accum"] for one in runs],
            "compiled": [one["compile"] for one in runs],
            "frozen_bits": [str(one["frozen_bits"]) for one in runs],
            "gpu_memory": [(one["gpu_memory_gb"] or inf) * 2**30 for one in runs],
            "gradient_bytes": [2.0 if "PURE" in one["note"] else 4.0 for one in runs],
            "bucket_mb": RUN_BUCKETS_MB,
        },
        len(runs),
    )
