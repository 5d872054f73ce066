"""Inputs whose reduction is exact in any order, so that results can be compared with ``==``.

The idea is nccl-tests' (its ``verifiable`` folder): small whole numbers, which no dtype rounds.
"""

import torch

from collectives.declaration import Algorithm
from collectives.parts import part_slice
from realcomm.execution.executor import COMBINE

PERIOD = 1009  # a prime, so that chunks of equal length hold different data


def exact_input(rank: int, n: int, dtype: torch.dtype, op: str) -> torch.Tensor:
    """Return ``n`` elements that differ along the buffer and from rank to rank: -1, 0 or 1; for products few above 1.

    >>> exact_input(0, 4, torch.float32, "sum")
    tensor([-1.,  1.,  0., -1.])
    """
    pattern = (torch.arange(PERIOD) * (rank + 2) + rank) % 3 - 1
    if op == "product":
        pattern = pattern + 2 if rank < 4 else 1 - 2 * pattern.abs()
    return pattern.to(dtype).repeat(-(-n // PERIOD))[:n].clone()


def exact_result(
    algorithm: Algorithm, rank: int, world_size: int, n: int, dtype: torch.dtype, op: str, root: int
) -> tuple[slice, torch.Tensor] | None:
    """Return the defined elements of ``rank`` after the collective on every rank's ``exact_input``: where, and which.

    Return None if there is nothing to compare: nothing is defined, or contributions may count repeatedly, as in a
    barrier.
    """
    spec = algorithm.spec
    parts = spec.result(rank, world_size, root)
    if not parts or spec.repeats:
        return None
    contributors = {part: spec.end(rank, part, world_size, root) or frozenset() for part in parts}
    result, filled = torch.empty(n, dtype=dtype), set[int]()
    for contributor in sorted(frozenset().union(*contributors.values())):
        data = exact_input(contributor, n, dtype, op)
        for part in (part for part in parts if contributor in contributors[part]):
            target, incoming = (
                result[part_slice(part, n, world_size)],
                data[part_slice(spec.origin(rank, part), n, world_size)],
            )
            (COMBINE[op] if part in filled else torch.Tensor.copy_)(target, incoming)
            filled.add(part)
    where = part_slice(parts, n, world_size)
    return where, result[where] / world_size if op == "mean" and spec.reduces else result[where]


def neutral_buffer(n: int, dtype: torch.dtype, op: str, device: torch.device) -> torch.Tensor:
    """Return a buffer that stays the same when it is reduced with its like, so that it can be used repeatedly.

    >>> neutral_buffer(2, torch.float32, "product", torch.device("cpu"))
    tensor([1., 1.])
    """
    return torch.full((n,), 1 if op == "product" else 0, dtype=dtype, device=device)
