"""The binomial tree: every rank that has the data sends it on, so that their number doubles with every step.

Chan et al. (2007), where it is the minimum-spanning-tree algorithm; Thakur, Rabenseifner, Gropp,
"Optimization of collective communication operations in MPICH", International Journal of High Performance Computing
Applications 19 (2005). Positions count from the root, which is at 0; clearing the lowest bit of a position gives its
parent's.
"""

from collections.abc import Iterator

from collectives.declaration import algorithm
from collectives.step import Program, recv, recv_reduce, send


def doublings(world_size: int) -> list[int]:
    """Return 1, 2, 4, ... below ``world_size``."""
    return [1 << bit for bit in range((world_size - 1).bit_length())]


@algorithm("broadcast", name="binomial", chunks=1)
def binomial_broadcast(rank: int, world_size: int, root: int) -> Program:
    """Every rank holds root's buffer. ceil(log2 p) steps; root sends ceil(log2 p) n bytes."""
    position = (rank - root) % world_size
    for distance in reversed(doublings(world_size)):
        if position % (2 * distance) == distance:
            yield recv((rank - distance) % world_size, 0)
        elif position % (2 * distance) == 0 and position + distance < world_size:
            yield send((rank + distance) % world_size, 0)


@algorithm("reduce", name="binomial", chunks=1)
def binomial_reduce(rank: int, world_size: int, root: int) -> Program:
    """Root holds the sum. ceil(log2 p) steps; every other rank sends n bytes, the least possible."""
    position = (rank - root) % world_size
    for distance in doublings(world_size):
        if position % (2 * distance) == distance:
            yield send((rank - distance) % world_size, 0)
        elif position % (2 * distance) == 0 and position + distance < world_size:
            yield recv_reduce((rank + distance) % world_size, 0)


@algorithm("all_reduce", name="binomial", chunks=1)
def binomial_all_reduce(rank: int, world_size: int) -> Program:
    """Every rank holds the sum. 2 ceil(log2 p) steps up the tree and down again; rank 0 sends ceil(log2 p) n bytes."""
    yield from binomial_reduce(rank, world_size, root=0)
    yield from binomial_broadcast(rank, world_size, root=0)


@algorithm("barrier", name="binomial", chunks=1)
def binomial_barrier(rank: int, world_size: int) -> Program:
    """Nobody leaves before all have come. 2 ceil(log2 p) steps of a token each, up the tree and down again."""
    yield from binomial_all_reduce(rank, world_size)


def consecutive_runs(first: int, count: int, world_size: int) -> Iterator[tuple[int, int]]:
    """Yield (first chunk, count) of the chunks ``first``, ``first + 1``, ... modulo ``world_size``.

    They are one run, or two where they wrap round the end of the buffer.
    """
    first %= world_size
    until_end = min(count, world_size - first)
    yield first, until_end
    if count > until_end:
        yield 0, count - until_end


@algorithm("scatter", name="binomial")
def binomial_scatter(rank: int, world_size: int, root: int) -> Program:
    """Rank r holds part r of root's buffer. ceil(log2 p) steps; root sends (p - 1) / p n bytes, the least possible.

    A rank receives the parts of all who come after it in the tree. Where they wrap round the end of the buffer they
    travel as two messages.
    """
    position = (rank - root) % world_size
    for distance in reversed(doublings(world_size)):
        if position % (2 * distance) == distance:
            own = consecutive_runs(rank, min(distance, world_size - position), world_size)
            yield tuple(recv((rank - distance) % world_size, *run) for run in own)
        elif position % (2 * distance) == 0 and position + distance < world_size:
            theirs = consecutive_runs(rank + distance, min(distance, world_size - position - distance), world_size)
            yield tuple(send((rank + distance) % world_size, *run) for run in theirs)


@algorithm("gather", name="binomial")
def binomial_gather(rank: int, world_size: int, root: int) -> Program:
    """Root holds part r of every rank r. ceil(log2 p) steps, the scatter's backwards; none sends over n / 2 bytes."""
    position = (rank - root) % world_size
    for distance in doublings(world_size):
        if position % (2 * distance) == distance:
            own = consecutive_runs(rank, min(distance, world_size - position), world_size)
            yield tuple(send((rank - distance) % world_size, *run) for run in own)
        elif position % (2 * distance) == 0 and position + distance < world_size:
            theirs = consecutive_runs(rank + distance, min(distance, world_size - position - distance), world_size)
            yield tuple(recv((rank + distance) % world_size, *run) for run in theirs)
