"""Inputs whose reduction is exact in any order, so that results can be compared with ``==``.

The idea is nccl-tests' (its ``verifiable`` folder): small whole numbers, which no dtype rounds.
"""

import torch

from collectives.request import Request, part_slice
from realcomm.execution.executor import COMBINE

PERIOD = 1009  # a prime, so that chunks of equal length hold different data


def exact_input(request: Request, rank: int) -> torch.Tensor:
    """Return elements that differ along the buffer and from rank to rank: -1, 0 or 1; for products few above 1.

    >>> from collectives import find_algorithm
    >>> exact_input(Request(find_algorithm("all_reduce/ring"), elements=4), rank=0)
    tensor([-1.,  1.,  0., -1.])
    """
    pattern, n = (torch.arange(PERIOD) * (rank + 2) + rank) % 3 - 1, request.elements
    if request.op == "product":
        pattern = pattern + 2 if rank < 4 else 1 - 2 * pattern.abs()
    return pattern.to(getattr(torch, request.dtype)).repeat(-(-n // PERIOD))[:n].clone()


def exact_result(request: Request, rank: int, world_size: int) -> tuple[slice, torch.Tensor] | None:
    """Return the defined elements of ``rank`` after the collective on every rank's ``exact_input``: where, and which.

    Return None if there is nothing to compare: nothing is defined, or contributions may count repeatedly, as in a
    barrier.
    """
    spec, n, op, root = request.spec, request.elements, request.op, request.root
    parts = spec.result(rank, world_size, root)
    if not parts or spec.repeats:
        return None
    contributors = {part: spec.end(rank, part, world_size, root) or frozenset() for part in parts}
    result, filled = torch.empty(n, dtype=getattr(torch, request.dtype)), set[int]()
    for contributor in sorted(frozenset().union(*contributors.values())):
        data = exact_input(request, contributor)
        for part in (part for part in parts if contributor in contributors[part]):
            target, incoming = (
                result[part_slice(part, n, world_size)],
                data[part_slice(spec.origin(rank, part), n, world_size)],
            )
            (COMBINE[op] if part in filled else torch.Tensor.copy_)(target, incoming)
            filled.add(part)
    where = part_slice(parts, n, world_size)
    return where, result[where] / world_size if op == "mean" and spec.reduces else result[where]


def neutral_buffer(request: Request, device: torch.device) -> torch.Tensor:
    """Return a buffer that stays the same when it is reduced with its like, so that it can be used repeatedly.

    >>> from collectives import find_algorithm
    >>> neutral_buffer(Request(find_algorithm("all_reduce/ring"), elements=2, op="product"), torch.device("cpu"))
    tensor([1., 1.])
    """
    value, dtype = 1 if request.op == "product" else 0, getattr(torch, request.dtype)
    return torch.full((request.elements,), value, dtype=dtype, device=device)
