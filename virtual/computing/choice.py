"""Choose the compute time: zero, measured CPU time, or a roofline model of a device."""

import time

from collectives.errors import InputError
from collectives.quoting import quote, suggest
from planner.beliefs import read_shipped
from planner.compute import MEMORY_SHARE
from planner.gpus import ANY_GPU, find_gpu
from simcomm.cluster.hardware import parts
from virtual.ranks.rank import Rank
from virtual.ranks.world import Computing

NOMINAL_CORE = ANY_GPU._replace(matrix_32=1e11, matrix_16=1e11, memory_rate=2e10)  # FLOP/s, bytes/s


def find_shares(gpu: str) -> tuple[float, float, float]:
    """Return the fractions of a GPU's peak that programs reach in matrix products, attention and memory bandwidth.

    The first two are the fractions that published language-model training reaches on this GPU generation, as in
    ``ringlab search``. Raise InputError if the GPU is not in the hardware catalog.

    >>> 0.5 < find_shares("H100 SXM")[0] < 0.9
    True
    """
    known = parts("GPU")
    if gpu not in known:
        accepted = "use zero, model, measured or a GPU from `ringlab list hardware`"
        raise InputError(f"unknown compute {quote(gpu)}; {accepted}: {suggest(gpu, known)}")
    generation, shares = find_gpu(gpu).generation, read_shipped().parameters
    return shares[f"gemm_{generation}"], shares[f"flash_{generation}"], MEMORY_SHARE


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
    shares = find_shares(word)
    return model.ModelledComputing(find_gpu(word), shares, launch_s)
