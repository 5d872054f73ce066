"""The lengths of buffers that an algorithm can work on.

Where data keeps its place in the buffer, any length will do. An all_to_all moves data to other places, so all its
chunks must be equally large; and a barrier's token cannot be empty, as empty messages are not sent.
"""

from collectives.declaration import Algorithm
from collectives.errors import InputError


def round_down(algorithm: Algorithm, n: int, world_size: int) -> int:
    """Return the most elements up to ``n`` that the algorithm can work on; nccl-tests rounds its sizes down likewise.

    >>> from collectives import find_algorithm
    >>> round_down(find_algorithm("all_to_all/pairwise"), 10, world_size=4)
    8
    """
    return n - n % algorithm.chunks(world_size) if algorithm.needs_equal_chunks else n


def check_length(algorithm: Algorithm, n: int, world_size: int) -> None:
    """Raise InputError unless the algorithm can work on buffers of ``n`` elements."""
    chunks = algorithm.chunks(world_size)
    if algorithm.needs_equal_chunks and n % chunks:
        why = "as data changes its place, " if algorithm.spec.moves else ""
        raise InputError(
            f"{algorithm.full_name}: {n} elements do not fall into {chunks} equal chunks; {why}a multiple of {chunks} "
            "is needed"
        )
    if algorithm.spec.repeats and n < 1:
        raise InputError(f"{algorithm.full_name}: no elements; its token needs at least one")
