"""Define the parameters of the step model with their priors. Transformers and profiles share them."""

from typing import NamedTuple

from collectives.training.parallelism import FRAMEWORKS


class Prior(NamedTuple):
    """The prior of a parameter: its median, and the standard deviation of its logarithm."""

    value: float
    spread: float


PRIORS: dict[str, Prior] = {
    # share of the data sheet's rate that matrix products of the best shape reach
    "gemm_ampere": Prior(0.80, 0.1),
    "gemm_hopper": Prior(0.70, 0.1),
    "gemm_blackwell": Prior(0.70, 0.1),
    "gemm_other": Prior(0.75, 0.15),
    "power_500w": Prior(0.85, 0.1),
    "precision_fp8": Prior(0.75, 0.15),  # factor of that share
    "precision_mxfp8": Prior(0.75, 0.15),
    "precision_nvfp4": Prior(0.7, 0.2),
    "wave": Prior(0.5, 0.5),  # exponent of the share of multiprocessors that are busy in the mean wave of tiles
    "inner": Prior(150, 0.5),  # start and end of a tile, in columns of the inner dimension
    "align": Prior(0.10, 0.5),  # exponent of the loss by dimensions that are not multiples of 64
    # attention: share of the data sheet's rate
    "flash_ampere": Prior(0.55, 0.2),
    "flash_hopper": Prior(0.33, 0.2),
    "flash_blackwell": Prior(0.40, 0.2),
    "flash_other": Prior(0.40, 0.25),
    "flash_triton": Prior(0.65, 0.2),  # kernels of 2023
    "flash_cudnn": Prior(1.5, 0.2),
    "unfused": Prior(0.35, 0.3),
    "score_bytes": Prior(12, 0.4),
    # memory-bound operations: bytes per element and token in forward
    "bytes_hidden": Prior(22, 0.3),
    "bytes_ffn": Prior(7, 0.3),
    "bytes_expert": Prior(14, 0.4),
    "fused": Prior(0.5, 0.3),  # share of these bytes that remains with torch.compile
    # the host's time in milliseconds per layer, forward and backward
    "host_ms": Prior(1.2, 0.4),
    "host_tensor": Prior(0.5, 0.6),
    "host_expert_ms": Prior(6, 0.4),
    "graph": Prior(0.3, 0.5),
    "selective": Prior(0.35, 0.4),  # share of products and bytes that selective recomputation repeats
    "head": Prior(1.0, 0.2),
    # collectives: share of the rate of the NCCL model, or of published bus bandwidths and NICs
    "eff_link": Prior(0.95, 0.1),  # inside a host
    "eff_network": Prior(0.9, 0.2),  # between hosts
    "scale": Prior(0.02, 0.7),  # share of the rate lost with each doubling of hosts
    "call_us": Prior(10, 0.7),
    "hop_us": Prior(3, 0.6),
    "hop_efa_us": Prior(35, 0.6),
    "data_hop_us": Prior(30, 0.7),
    "data_hop_efa_us": Prior(100, 0.7),
    # overlap: seconds that compute loses per second of communication, and shares of collectives that compute hides
    "overlap_slowdown_nvlink": Prior(0.4, 0.5),
    "overlap_slowdown_pcie": Prior(0.5, 0.5),
    "overlap_slowdown_host": Prior(0.9, 0.1),
    "overlap_slowdown_network": Prior(0.5, 0.5),
    "tensor_hidden": Prior(0.25, 0.5),
    "tensor_async": Prior(0.65, 0.3),
    "context_hidden": Prior(0.6, 0.4),
    "expert_hidden": Prior(0.35, 0.5),
    "p2p_exposed": Prior(0.7, 0.5),
    "gather_shown": Prior(0.6, 0.4),
    "fsdp_hidden": Prior(0.85, 0.15),
    # additional time of several devices
    "copy_passes": Prior(15, 0.7),  # passes of the gradients through memory
    "process_ms": Prior(35, 1.0),
    "jitter": Prior(0.01, 0.5),
    "jitter_variable": Prior(0.1, 0.5),
    "jitter_nodes": Prior(0.03, 0.7),
    # loaders (samples/s per core) and parameter servers
    "dali_per_core": Prior(400, 0.5),
    "decode_per_core": Prior(130, 0.5),
    "input_power": Prior(5, 0.3),
    "ps_eff": Prior(1.0, 0.7),
    "ps_GBps": Prior(24, 0.5),
    "ps_one_GBps": Prior(12, 0.5),
    # the rest of a step
    "optimizer_bytes": Prior(34, 0.3),
    "step_ms": Prior(20, 0.6),
    # on the cluster of one source, pipelines over the network slow down tensor groups inside hosts
    "pipeline_tensor_ms": Prior(4.0, 0.5),
    # not in any published run; the values are from the literature
    "zero_bubble": Prior(
        0.33, 0.4
    ),  # share of 1F1B's bubble in the same memory (ZB-H1, https://arxiv.org/abs/2401.10241)
    "host_link": Prior(0.75, 0.2),  # share of PCIe's rate that copies from pinned memory reach
    "host_update": Prior(4.0, 0.5),  # 10^9 parameters/s that a host's cores update (ZeRO-Offload, table of CPU-Adam:
    # 1e9 in 0.22 s, 1e10 in 2.6 s, https://arxiv.org/abs/2101.06840)
    "unpack_bytes": Prior(6.0, 0.6),  # memory traffic to dequantize a frozen weight of 8 or 4 bits and to read it
    # machines without published runs: only the deviations matter; (*) benchmarks/studies/unseen_machines.py
    "unseen_gpu": Prior(1.0, 0.25),  # factor of the rates of a GPU without published runs of language models
    "unseen_link": Prior(1.0, 0.94),  # factor of the rate of a described machine's PCIe or TCP (*)
    "unseen_several": Prior(1.0, 0.38),  # factor of the step of several GPUs on such a machine (*)
    # on the same job, releases of mixtures of experts differ by up to 1.7 times
    "experts": Prior(1.0, 0.25),
    **{f"framework_{name}": Prior(1.0, 0.08) for name in FRAMEWORKS},
}
NAMES = tuple(PRIORS)
