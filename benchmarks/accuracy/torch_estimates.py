"""What torch's own estimator says of a collective: ``torch._inductor.comm_analysis``, called as it is.

Inductor asks it to order the communication of a compiled model. It takes bytes, ranks and a collective, and finds the
rest out from the machine that it runs on: the GPU's compute capability, GPUs of a host, whether ``nvidia-smi`` shows
NVLink. For a machine elsewhere those three are put in; bandwidths are the estimator's own defaults.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from realcomm.launching.torch_process import importing_compiler

GPU_TYPES = {  # by generation, as its get_gpu_type finds them by compute capability; else it takes Ampere
    "volta": "VOLTA", "turing": "VOLTA", "ampere": "AMPERE", "ada": "AMPERE", "hopper": "HOPPER",
    "blackwell": "BLACKWELL", "cdna": "HOPPER",
}  # fmt: skip
KERNEL_NAMES = {"send_recv": "batch_p2p"}


@dataclass(frozen=True)
class TorchMachine:
    """What the estimator would find out on a host: its GPUs, their generation, and whether NVLink joins them."""

    generation: str
    gpus: int
    has_nvlink: bool


def estimate_with_torch(machine: TorchMachine, collective: str, ranks: int, sizes: Sequence[int]) -> list[float] | None:
    """Return torch's estimates in seconds; None for a collective that it does not estimate.

    ``sizes`` are nccl-tests': of an all_gather, whose input Inductor passes on, the total of all inputs.

    >>> estimate_with_torch(TorchMachine("hopper", 8, True), "reduce", 8, [1024]) is None
    True
    """
    with importing_compiler():
        from torch._inductor import comm_analysis  # slow to import

    kind = comm_analysis.get_collective_type_from_kernel_name(KERNEL_NAMES.get(collective, collective))
    if kind == comm_analysis.NCCL_COLL.UNSUPPORTED:
        return None
    inputs = [max(1, size // ranks) for size in sizes] if collective == "all_gather" else sizes
    with _on(machine, comm_analysis):
        return [comm_analysis.estimate_nccl_collective_runtime_impl(size, ranks, kind) / 1e3 for size in inputs]


@contextmanager
def _on(machine: TorchMachine, comm_analysis: Any) -> Iterator[None]:
    """Let the estimator find this machine in place of the one that it runs on."""
    gpu_type = comm_analysis.NVIDIA_GPU_TYPE[GPU_TYPES.get(machine.generation, "AMPERE")]
    with ExitStack() as stack:
        for target, name, value in (
            (comm_analysis, "get_gpu_type", gpu_type),
            (comm_analysis, "_has_nvlink", machine.has_nvlink),
            (comm_analysis.torch.cuda, "is_available", True),
            (comm_analysis.torch.cuda, "device_count", machine.gpus),
        ):
            stack.enter_context(patch.object(target, name, return_value=value))
        yield
