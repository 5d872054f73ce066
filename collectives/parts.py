"""The parts of a buffer, one for each rank: which elements they hold, and where a collective leaves reduced data."""

import numpy as np
import numpy.typing as npt

from collectives.spec import Spec


def part_slice(parts: int | range, n: int, world_size: int) -> slice:
    """Return the elements of one part, or of consecutive parts, of a buffer of ``n`` elements.

    Part i covers elements ``[i * n // world_size, (i + 1) * n // world_size)``, as chunks do.

    >>> part_slice(1, 10, world_size=4), part_slice(range(1, 3), 10, world_size=4)
    (slice(2, 5, None), slice(2, 7, None))
    """
    first, end = (parts, parts + 1) if isinstance(parts, int) else (parts.start, parts.stop)
    return slice(first * n // world_size, end * n // world_size)


def reduced_slice(spec: Spec, rank: int, world_size: int, root: int, n: int) -> slice:
    """Return the elements of a rank's buffer that hold reduced data at the end, which a mean divides.

    >>> from collectives.spec import find_spec
    >>> reduced_slice(find_spec("reduce_scatter"), rank=1, world_size=4, root=0, n=10)
    slice(2, 5, None)
    """
    return part_slice(spec.result(rank, world_size, root) if spec.reduces else range(0), n, world_size)


def reduced_counts(spec: Spec, world_size: int, root: int, n: int) -> npt.NDArray[np.int64]:
    """Return how many elements of each rank's buffer hold reduced data at the end; shape [world_size].

    All ranks but the root end with the same parts, or each with its own, so one of them stands for all.

    >>> from collectives.spec import find_spec
    >>> reduced_counts(find_spec("reduce"), world_size=3, root=1, n=10)
    array([ 0, 10,  0])
    """
    if not spec.reduces:
        return np.zeros(world_size, np.int64)
    parts = spec.result((root + 1) % world_size, world_size, root)
    own_sizes = np.diff(np.arange(world_size + 1) * n // world_size)
    counts = own_sizes if len(parts) == 1 else np.full(world_size, n if parts else 0)
    if spec.rooted:
        at_root = reduced_slice(spec, root, world_size, root, n)
        counts[root] = at_root.stop - at_root.start
    return counts
