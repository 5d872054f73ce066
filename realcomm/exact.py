"""Inputs whose reduced result is exact whatever the order, so that a result can be checked with ``==``.

The idea is nccl-tests' (its ``verifiable`` folder): small whole numbers, which no dtype rounds.
"""

import torch

from collectives.catalogue import Algorithm
from realcomm.execute import COMBINE

PERIOD = 1009  # a prime, so that chunks of equal length hold different data


def exact_input(rank: int, n: int, dtype: torch.dtype, op: str) -> torch.Tensor:
    """``n`` elements that differ from place to place and rank to rank: -1, 0 or 1; for products few above 1."""
    pattern = (torch.arange(PERIOD) * (rank + 2) + rank) % 3 - 1
    if op == "product":
        pattern = pattern + 2 if rank < 4 else 1 - 2 * pattern.abs()
    return pattern.to(dtype).repeat(-(-n // PERIOD))[:n].clone()


def exact_result(
    algorithm: Algorithm, rank: int, world_size: int, n: int, dtype: torch.dtype, op: str, root: int
) -> torch.Tensor | None:
    """What ``rank`` holds after the collective on everyone's ``exact_input``; None where it may be anything."""
    contributors = algorithm.spec.end(rank, world_size, root)
    if contributors is None:
        return None
    first, *others = sorted(contributors)
    result = exact_input(first, n, dtype, op)
    for other in others:
        COMBINE[op](result, exact_input(other, n, dtype, op))
    return result / world_size if op == "mean" and algorithm.spec.reduces else result


def neutral(n: int, dtype: torch.dtype, op: str, device: torch.device) -> torch.Tensor:
    """A buffer that reducing it with its like leaves as it is, so that it can be used again and again."""
    return torch.full((n,), 1 if op == "product" else 0, dtype=dtype, device=device)
