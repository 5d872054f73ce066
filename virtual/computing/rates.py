"""How fast a device computes, for the model of what ranks compute: peaks by type, and its memory."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from collectives.errors import InputError
from collectives.quoting import quote, suggest
from simcomm.cluster.hardware_parts import parts

KERNEL_S = 2e-6  # that any operation takes at least
HALF = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class DeviceRates:
    """Peaks in flops/s of operations on floats of 16 and of 32 bits, and bytes/s of memory."""

    name: str
    half: float
    single: float
    memory: float

    def seconds(self, flops: float, nbytes: float, dtype: torch.dtype) -> float:
        """Return what an operation takes that is limited by its flops or by its memory, whichever is slower."""
        peak = self.half if dtype in HALF else self.single
        return max(flops / peak, nbytes / self.memory, KERNEL_S)


NOMINAL_CORE = DeviceRates("a core of 100 GFLOP/s with 20 GB/s of memory", 1e11, 1e11, 2e10)


def find_rates(gpu: str) -> DeviceRates:
    """Return the rates of a GPU of the hardware catalogue by its data sheet; TF32 for floats of 32 bits.

    Raises InputError for a name that is not there.

    >>> find_rates("H100 SXM").memory
    3350000000000.0
    """
    known = parts("GPU")
    if gpu not in known:
        words = "there are zero, model, measured and the GPUs of `ringlab hardware`"
        raise InputError(f"compute is {quote(gpu)}; {words}: {suggest(gpu, known)}")
    said = {key: str(value.value) for key, value in known[gpu].items()}
    single = _number(said.get("tf32", said["fp32"]))
    return DeviceRates(gpu, _number(said.get("fp16", said["fp32"])), single, _number(said["memory_bandwidth"]))


UNITS: Mapping[str, float] = {"TFLOP/s": 1e12, "GB/s": 1e9}


def _number(text: str) -> float:
    """Return a figure of the catalogue in flops/s or bytes/s."""
    number, _, unit = text.partition(" ")
    return float(number) * UNITS[unit]
