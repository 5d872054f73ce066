"""The data that a collective leaves on each rank, computed in numpy from the definition of the collective."""

import numpy as np
import numpy.typing as npt

from collectives import Algorithm

Array = npt.NDArray[np.float64]
REDUCE = {"sum": np.sum, "mean": np.mean, "min": np.min, "max": np.max, "product": np.prod}


def part(index: int, n: int, p: int) -> slice:
    """Return the slice of part ``index`` of a buffer of ``n`` elements and ``p`` parts."""
    return slice(index * n // p, (index + 1) * n // p)


def expected(collective: str, op: str, data: list[Array], root: int, rank: int) -> list[tuple[slice, Array]]:
    """Return the slices of the rank's buffer that are defined at the end, with their content."""
    p, n = len(data), len(data[0])
    everything, shard = slice(0, n), part(rank, n, p)
    reduced = REDUCE[op](np.stack(data), axis=0)
    if collective == "all_reduce" or (collective == "reduce" and rank == root):
        return [(everything, reduced)]
    if collective == "broadcast":
        return [(everything, data[root])]
    if collective == "reduce_scatter":
        return [(shard, reduced[shard])]
    if collective == "scatter":
        return [(shard, data[root][shard])]
    if collective == "all_gather" or (collective == "gather" and rank == root):
        return [(part(i, n, p), data[i][part(i, n, p)]) for i in range(p)]
    if collective == "all_to_all":
        return [(part(i, n, p), data[i][shard]) for i in range(p)]
    assert collective in ("reduce", "gather", "barrier"), collective
    return []


def lengths(algorithm: Algorithm, p: int) -> list[int]:
    """Return short, uneven and long buffer lengths that the algorithm supports."""
    chosen = {0, 1, 2, p - 1, p, p + 1, 1003}
    if algorithm.spec.moves:
        chosen = {n * algorithm.chunks(p) for n in (0, 1, 5)}
    return sorted(n for n in chosen if n > 0 or algorithm.spec.name != "barrier")


def ops(algorithm: Algorithm) -> list[str]:
    return list(REDUCE) if algorithm.spec.reduces else ["sum"]


def inputs(p: int, n: int) -> list[Array]:
    """Return integers that differ by rank and position. The product of 17 of them is exact."""
    places = np.arange(n)
    return [((places * 7 + rank * 5) % 4 + 1.0) * (1 if rank % 3 else p) for rank in range(p)]
