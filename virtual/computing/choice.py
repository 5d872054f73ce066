"""Choose the compute time: zero, measured CPU time, or a roofline model of a device."""

import time
from dataclasses import dataclass

import torch

from collectives.errors import InputError
from collectives.quoting import quote, suggest
from planner.beliefs import read_shipped
from planner.compute import MEMORY_SHARE
from planner.gpus import find_gpu
from simcomm.cluster.hardware import parts
from virtual.ranks.rank import Rank
from virtual.ranks.world import Computing

KERNEL_S = 2e-6  # minimum time of an operation
HALF = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class DeviceRates:
    """A device's attainable rates: FLOP/s in 16-bit floats, 32-bit floats and 16-bit attention, and memory bytes/s."""

    name: str
    half: float
    single: float
    attention: float
    memory: float

    def seconds(self, flops: float, nbytes: float, dtype: torch.dtype, is_attention: bool = False) -> float:
        """Return an operation's time in seconds: the larger of FLOP time and memory time, but at least ``KERNEL_S``."""
        reached = self.half if dtype in HALF else self.single
        if is_attention:
            reached = min(reached, self.attention)
        return max(flops / reached, nbytes / self.memory, KERNEL_S)


NOMINAL_CORE = DeviceRates("a core of 100 GFLOP/s with 20 GB/s of memory", 1e11, 1e11, 1e11, 2e10)


def find_rates(gpu: str) -> DeviceRates:
    """Return the rates of a GPU from the hardware catalog. Raise InputError if the GPU is unknown.

    Each rate is a fraction of the data-sheet value. The FLOP/s are those that published language-model training reaches
    on this GPU generation, as in ``ringlab search``. 32-bit floats run at the TF32 rate.

    >>> 0.5 < find_rates("H100 SXM").half / 989e12 < 0.9
    True
    """
    known = parts("GPU")
    if gpu not in known:
        words = "use zero, model, measured or a GPU from `ringlab list hardware`"
        raise InputError(f"unknown compute {quote(gpu)}; {words}: {suggest(gpu, known)}")
    specification, shares = find_gpu(gpu), read_shipped().parameters
    product, attention = (shares[f"{kind}_{specification.generation}"] for kind in ("gemm", "flash"))
    return DeviceRates(
        gpu,
        half=product * specification.matrix_16,
        single=product * specification.matrix_32,
        attention=attention * specification.matrix_16,
        memory=MEMORY_SHARE * specification.memory_rate,
    )


class MeasuredComputing(Computing):
    def __init__(self) -> None:
        self._marks: dict[Rank, float] = {}

    def charge(self, rank: Rank) -> None:
        now = time.thread_time()
        rank.spend(max(0.0, now - self._marks.get(rank, now)))
        self._marks[rank] = now

    def forget(self, rank: Rank) -> None:
        self._marks[rank] = time.thread_time()


def choose_computing(word: str, launch_s: float | None = None) -> Computing:
    """Return the compute model for "zero", "measured", "model" or a GPU. Raise InputError for any other word.

    ``launch_s`` is the host time in seconds to launch an operator on the GPU. If it is None, operators run
    synchronously.
    """
    if word == "zero":
        return Computing()
    if word == "measured":
        return MeasuredComputing()
    from virtual.computing import model  # torch's FLOP counter imports Triton, which is slow

    if word == "model":
        return model.ModelledComputing(NOMINAL_CORE)
    return model.ModelledComputing(find_rates(word), launch_s)
