"""Binomial tree: the number of ranks that have the data doubles in each step.

**Steps.** Ranks are numbered from the root, which has position 0. In a broadcast, each rank that has the data sends it
to the rank at a distance d. The first d is the largest power of two below p, and d halves in each step. The parent of a
position is the position with its lowest set bit cleared: 6 (binary 110) receives from 4 (100). A reduce runs the same
steps in reverse order: each rank adds the data of its children and then sends to its parent.

**Why it is correct.** Each position other than 0 has exactly one parent, and receives in the step of its lowest set
bit. The parent's lowest set bit is larger, so the parent has the data in an earlier step.

**Source.** Chan et al. (2007), who call it the minimum spanning tree algorithm; Thakur, Rabenseifner, Gropp (2005).

**When to choose it.** For short messages: ceil(log2 p) steps are the minimum with one message at a time. Scatter and
gather also suit large messages. For large broadcasts use ``chain`` or ``double_tree``.
"""

from collections.abc import Iterator

from collectives.declaration import algorithm
from collectives.step import Program, recv, recv_reduce, send


def doublings(world_size: int) -> list[int]:
    """Return the powers of two below ``world_size``."""
    return [1 << bit for bit in range((world_size - 1).bit_length())]


@algorithm("broadcast", name="binomial", chunks=1)
def binomial_broadcast(rank: int, world_size: int, root: int) -> Program:
    """Copy the root's buffer to all ranks in ceil(log2 p) steps. The root sends ceil(log2 p) n bytes."""
    position = (rank - root) % world_size
    for distance in reversed(doublings(world_size)):
        if position % (2 * distance) == distance:
            yield recv((rank - distance) % world_size, 0)
        elif position % (2 * distance) == 0 and position + distance < world_size:
            yield send((rank + distance) % world_size, 0)


@algorithm("reduce", name="binomial", chunks=1)
def binomial_reduce(rank: int, world_size: int, root: int) -> Program:
    """Sum all buffers on the root in ceil(log2 p) steps. Every rank except the root sends n bytes."""
    position = (rank - root) % world_size
    for distance in doublings(world_size):
        if position % (2 * distance) == distance:
            yield send((rank - distance) % world_size, 0)
        elif position % (2 * distance) == 0 and position + distance < world_size:
            yield recv_reduce((rank + distance) % world_size, 0)


@algorithm("all_reduce", name="binomial", chunks=1)
def binomial_all_reduce(rank: int, world_size: int) -> Program:
    """Sum all buffers on rank 0, then broadcast the sum, in 2 ceil(log2 p) steps. Rank 0 sends ceil(log2 p) n bytes."""
    yield from binomial_reduce(rank, world_size, root=0)
    yield from binomial_broadcast(rank, world_size, root=0)


@algorithm("barrier", name="binomial", chunks=1)
def binomial_barrier(rank: int, world_size: int) -> Program:
    """Collect tokens on rank 0, then release all ranks, in 2 ceil(log2 p) steps. Each message is one token."""
    yield from binomial_all_reduce(rank, world_size)


def consecutive_runs(first: int, count: int, world_size: int) -> Iterator[tuple[int, int]]:
    """Yield (first chunk, number of chunks) for ``count`` consecutive chunks from ``first`` on, modulo ``world_size``.

    There are two pairs if the chunks wrap around the end of the buffer, otherwise one.
    """
    first %= world_size
    until_end = min(count, world_size - first)
    yield first, until_end
    if count > until_end:
        yield 0, count - until_end


@algorithm("scatter", name="binomial")
def binomial_scatter(rank: int, world_size: int, root: int) -> Program:
    """Send chunk r of the root to rank r in ceil(log2 p) steps. The root sends (p - 1) n / p bytes, which is optimal.

    A rank receives the chunks of its whole subtree. They take two messages if they wrap around the end of the buffer.
    """
    position = (rank - root) % world_size
    for distance in reversed(doublings(world_size)):
        if position % (2 * distance) == distance:
            subtree = consecutive_runs(rank, min(distance, world_size - position), world_size)
            yield tuple(recv((rank - distance) % world_size, *run) for run in subtree)
        elif position % (2 * distance) == 0 and position + distance < world_size:
            child = consecutive_runs(rank + distance, min(distance, world_size - position - distance), world_size)
            yield tuple(send((rank + distance) % world_size, *run) for run in child)


@algorithm("gather", name="binomial")
def binomial_gather(rank: int, world_size: int, root: int) -> Program:
    """Collect chunk r of each rank r on the root in ceil(log2 p) steps, in the reverse order of the scatter.

    No rank sends more than n / 2 bytes.
    """
    position = (rank - root) % world_size
    for distance in doublings(world_size):
        if position % (2 * distance) == distance:
            subtree = consecutive_runs(rank, min(distance, world_size - position), world_size)
            yield tuple(send((rank - distance) % world_size, *run) for run in subtree)
        elif position % (2 * distance) == 0 and position + distance < world_size:
            child = consecutive_runs(rank + distance, min(distance, world_size - position - distance), world_size)
            yield tuple(recv((rank + distance) % world_size, *run) for run in child)
