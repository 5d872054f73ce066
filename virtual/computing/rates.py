"""How fast a device computes, for the model of what ranks compute: what it reaches of its peaks, and its memory."""

from dataclasses import dataclass

import torch

from collectives.errors import InputError
from collectives.quoting import quote, suggest
from planner.beliefs import read_shipped
from planner.compute import MEMORY_SHARE
from planner.gpus import find_gpu
from simcomm.cluster.hardware import parts

KERNEL_S = 2e-6  # that any operation takes at least
HALF = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class DeviceRates:
    """Flops/s of operations on floats of 16 and of 32 bits, of attention on 16, and bytes/s of memory."""

    name: str
    half: float
    single: float
    attention: float
    memory: float

    def seconds(self, flops: float, nbytes: float, dtype: torch.dtype, is_attention: bool = False) -> float:
        """Return what an operation takes that is limited by its flops or by its memory, whichever is slower."""
        reached = self.half if dtype in HALF else self.single
        if is_attention:
            reached = min(reached, self.attention)
        return max(flops / reached, nbytes / self.memory, KERNEL_S)


NOMINAL_CORE = DeviceRates("a core of 100 GFLOP/s with 20 GB/s of memory", 1e11, 1e11, 1e11, 2e10)


def find_rates(gpu: str) -> DeviceRates:
    """Return the rates of a GPU of the hardware catalogue; TF32 for floats of 32 bits.

    They are shares of the data sheet's: those that published trainings of language models reach with GPUs of its
    generation, as ``ringlab search`` has them. Raises InputError for a name that is not there.

    >>> 0.5 < find_rates("H100 SXM").half / 989e12 < 0.9
    True
    """
    known = parts("GPU")
    if gpu not in known:
        words = "there are zero, model, measured and the GPUs of `ringlab list hardware`"
        raise InputError(f"compute is {quote(gpu)}; {words}: {suggest(gpu, known)}")
    found, shares = find_gpu(gpu), read_shipped().parameters
    product, attention = (shares[f"{kind}_{found.generation}"] for kind in ("gemm", "flash"))
    return DeviceRates(
        gpu,
        half=product * found.matrix_16,
        single=product * found.matrix_32,
        attention=attention * found.matrix_16,
        memory=MEMORY_SHARE * found.memory_rate,
    )
