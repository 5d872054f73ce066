"""Parameters of the step: a prior each, log-normal, and what published runs make of it."""

from pathlib import Path
from typing import NamedTuple


class Prior(NamedTuple):
    """A median and the standard deviation of its logarithm."""

    value: float
    spread: float


PRIORS: dict[str, Prior] = {
    # shares of the data sheet that matrix products of the best shape reach
    "gemm_ampere": Prior(0.80, 0.1),
    "gemm_hopper": Prior(0.70, 0.1),
    "gemm_blackwell": Prior(0.70, 0.1),
    "power_500w": Prior(0.85, 0.1),
    "gemm_other": Prior(0.75, 0.15),
    "precision_fp8": Prior(0.75, 0.15),  # of that share
    "precision_mxfp8": Prior(0.75, 0.15),
    "precision_nvfp4": Prior(0.7, 0.2),
    "wave": Prior(0.5, 0.5),  # exponent of the share of multiprocessors that the last wave of tiles leaves busy
    "inner": Prior(150, 0.5),  # columns of the inner dimension that a tile's start and end cost
    "align": Prior(0.10, 0.5),  # exponent of what odd dimensions lose
    # attention: shares of the data sheet
    "flash_ampere": Prior(0.55, 0.2),
    "flash_hopper": Prior(0.33, 0.2),
    "flash_blackwell": Prior(0.40, 0.2),
    "flash_other": Prior(0.40, 0.25),
    "flash_triton": Prior(0.65, 0.2),  # kernels of 2023
    "flash_cudnn": Prior(1.5, 0.2),
    "unfused": Prior(0.35, 0.3),
    "score_bytes": Prior(12, 0.4),
    # operations that memory limits: bytes an element and token, forward
    "bytes_hidden": Prior(22, 0.3),
    "bytes_ffn": Prior(7, 0.3),
    "bytes_expert": Prior(14, 0.4),
    "fused": Prior(0.5, 0.3),  # what a compiler leaves of them
    # the host: milliseconds a layer, forward and back
    "host_ms": Prior(1.2, 0.4),
    "host_tensor": Prior(0.5, 0.6),
    "host_expert_ms": Prior(6, 0.4),
    "graph": Prior(0.3, 0.5),
    "selective": Prior(0.35, 0.4),  # of products and bytes, computed again
    # collectives
    "nvlink": Prior(0.75, 0.15),
    "net": Prior(0.70, 0.2),
    "scale": Prior(0.03, 0.7),  # lost with each doubling of nodes
    "collective_us": Prior(20, 0.5),
    "hop_us": Prior(3, 0.6),
    "hop_efa_us": Prior(35, 0.6),
    "data_hop_us": Prior(30, 0.7),
    "data_hop_efa_us": Prior(150, 0.7),
    "bucket_mb": Prior(40, 0.5),
    "tensor_hidden": Prior(0.25, 0.5),
    "tensor_async": Prior(0.65, 0.3),
    "context_hidden": Prior(0.6, 0.4),
    "expert_hidden": Prior(0.35, 0.5),
    "p2p_exposed": Prior(0.7, 0.5),
    "data_hidden": Prior(0.6, 0.3),
    "gather_shown": Prior(0.6, 0.4),
    "fsdp_hidden": Prior(0.85, 0.15),
    # the rest of a step
    "optimizer_bytes": Prior(34, 0.3),
    "step_ms": Prior(20, 0.6),
    "jitter": Prior(0.006, 0.5),
    "head": Prior(1.0, 0.2),
    # one cluster's: pipelines over its network slow tensor groups inside of nodes
    "pipeline_tensor_ms": Prior(4.0, 0.5),
    # what no published run here tells: held by other sources, and as unsure as they are
    "zero_bubble": Prior(0.33, 0.4),  # of 1F1B's bubble, with the same memory (ZB-H1, https://arxiv.org/abs/2401.10241)
    "host_link": Prior(0.75, 0.2),  # of PCIe, copies from pinned memory
    "host_update": Prior(4.0, 0.5),  # 10^9 parameters a second that a node's processors update (ZeRO-Offload's table of
    # CPU-Adam: 1 billion in .22 s, 10 in 2.6, https://arxiv.org/abs/2101.06840)
    "unpack_bytes": Prior(6.0, 0.6),  # of memory, for a frozen weight of 8 or 4 bits: read, written, read as 16 bits
    # releases of mixtures of experts differ by up to 1.7 times on one job
    "experts": Prior(1.0, 0.25),
    # frameworks
    "framework_other": Prior(1.0, 0.08),
    "framework_nanotron": Prior(1.0, 0.08),
    "framework_torchtitan": Prior(1.0, 0.08),
    "framework_megatron-deepspeed": Prior(1.0, 0.08),
    "framework_megatron-bridge": Prior(1.0, 0.08),
    "framework_llm-foundry": Prior(1.0, 0.08),
    "framework_nemo": Prior(1.0, 0.08),
    "framework_megatron": Prior(1.0, 0.08),
}

FITTED = Path(__file__).parent / "data" / "parameters.json"
