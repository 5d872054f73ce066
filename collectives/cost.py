"""Closed-form costs and lower bounds, in the field's alpha (s a message), beta (s a byte), gamma (s a byte reduced).

They hold on a symmetric network without contention, one message at a time in each direction of a rank's link, and
for buffers that the chunks divide evenly. Sources: Chan, Heimlich, Purkayastha, van de Geijn (2007), sections 4 and 5;
Thakur, Rabenseifner, Gropp (2005); Patarasuk and Yuan (2009).
"""

from collections.abc import Callable
from math import ceil, log2

Cost = Callable[[int, float, float, float, float], float]  # (world_size, nbytes, alpha, beta, gamma) -> seconds


def naive_broadcast(p: int, nbytes: float, alpha: float, beta: float, gamma: float) -> float:
    return (p - 1) * (alpha + nbytes * beta)


def naive_reduce(p: int, nbytes: float, alpha: float, beta: float, gamma: float) -> float:
    return (p - 1) * (alpha + nbytes * (beta + gamma))


def naive_all_reduce(p: int, nbytes: float, alpha: float, beta: float, gamma: float) -> float:
    return naive_reduce(p, nbytes, alpha, beta, gamma) + naive_broadcast(p, nbytes, alpha, beta, gamma)


def ring_all_reduce(p: int, nbytes: float, alpha: float, beta: float, gamma: float) -> float:
    return 2 * (p - 1) * (alpha + nbytes / p * beta) + (p - 1) * nbytes / p * gamma


CLOSED_FORMS: dict[str, Cost] = {
    "broadcast/naive": naive_broadcast,
    "reduce/naive": naive_reduce,
    "all_reduce/naive": naive_all_reduce,
    "all_reduce/ring": ring_all_reduce,
}


def least_steps(collective: str, p: int) -> int:
    """Steps that no algorithm can do without: what one rank knows at most doubles its reach in a step."""
    return ceil(log2(p)) if p > 1 else 0


def least_sent_share(collective: str, p: int) -> float:
    """Bytes that the busiest rank must send at least, as a share of the buffer's bytes (Chan et al. 2007, table 1)."""
    if p == 1:
        return 0.0
    return {"broadcast": 1.0, "reduce": 1.0, "all_reduce": 2 * (p - 1) / p}[collective]


def bus_factor(collective: str, p: int) -> float:
    """busbw over algbw, as nccl-tests defines it (its doc/PERFORMANCE.md)."""
    return {"broadcast": 1.0, "reduce": 1.0, "all_reduce": 2 * (p - 1) / p}[collective]
