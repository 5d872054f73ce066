"""Naive (linear) algorithms: the root exchanges one message with each other rank, one after the other.

**Steps.** In a broadcast, the root sends its whole buffer to rank root + 1, then to root + 2, and so on; every other
rank receives once. A reduce is the reverse: the root receives each buffer and adds it to its own. The other collectives
combine these two with rank 0 as the root.

**Why it is correct.** Each rank's data enters the result once, when the root receives it, and the root sends only
complete results.

**Source.** Chan, Heimlich, Purkayastha, van de Geijn (2007).

**When to choose it.** For two or three ranks, and as the baseline that the other algorithms improve on.
"""

from collections.abc import Iterator

from collectives.declaration import algorithm
from collectives.step import Program, recv, recv_reduce, send


def others(rank: int, world_size: int) -> Iterator[int]:
    """Yield the other ranks in order: ``rank + 1``, ``rank + 2``, and so on, modulo ``world_size``."""
    for distance in range(1, world_size):
        yield (rank + distance) % world_size


@algorithm("broadcast", name="naive", chunks=1)
def naive_broadcast(rank: int, world_size: int, root: int) -> Program:
    """Copy the root's buffer to all ranks in p - 1 steps. The root sends (p - 1) n bytes."""
    if rank != root:
        yield recv(root, 0)
        return
    for peer in others(root, world_size):
        yield send(peer, 0)


@algorithm("reduce", name="naive", chunks=1)
def naive_reduce(rank: int, world_size: int, root: int) -> Program:
    """Sum all buffers on the root in p - 1 steps. Each rank except the root sends n bytes."""
    if rank != root:
        yield send(root, 0)
        return
    for peer in others(root, world_size):
        yield recv_reduce(peer, 0)


@algorithm("all_reduce", name="naive", chunks=1)
def naive_all_reduce(rank: int, world_size: int) -> Program:
    """Sum all buffers on rank 0, then broadcast the sum, in 2 (p - 1) steps. Rank 0 sends (p - 1) n bytes."""
    yield from naive_reduce(rank, world_size, root=0)
    yield from naive_broadcast(rank, world_size, root=0)


@algorithm("scatter", name="naive")
def naive_scatter(rank: int, world_size: int, root: int) -> Program:
    """Send chunk r of the root to rank r in p - 1 steps. The root sends (p - 1) n / p bytes, which is optimal."""
    if rank != root:
        yield recv(root, rank)
        return
    for peer in others(root, world_size):
        yield send(peer, peer)


@algorithm("gather", name="naive")
def naive_gather(rank: int, world_size: int, root: int) -> Program:
    """Collect chunk r of each rank r on the root in p - 1 steps. Every rank except the root sends n / p bytes."""
    if rank != root:
        yield send(root, rank)
        return
    for peer in others(root, world_size):
        yield recv(peer, peer)


@algorithm("all_gather", name="naive")
def naive_all_gather(rank: int, world_size: int) -> Program:
    """Gather all chunks on rank 0, then broadcast them, in 2 (p - 1) steps. Rank 0 sends (p - 1) n bytes."""
    yield from naive_gather(rank, world_size, root=0)
    if rank != 0:
        yield recv(0, 0, count=world_size)
        return
    for peer in others(0, world_size):
        yield send(peer, 0, count=world_size)


@algorithm("reduce_scatter", name="naive")
def naive_reduce_scatter(rank: int, world_size: int) -> Program:
    """Sum all buffers on rank 0, then scatter the sum, in 2 (p - 1) steps. The other ranks send n bytes."""
    if rank != 0:
        yield send(0, 0, count=world_size)
    else:
        for peer in others(0, world_size):
            yield recv_reduce(peer, 0, count=world_size)
    yield from naive_scatter(rank, world_size, root=0)


@algorithm("barrier", name="naive", chunks=1)
def naive_barrier(rank: int, world_size: int) -> Program:
    """Collect a token of every rank on rank 0, then release the ranks, in 2 (p - 1) steps with one token each."""
    yield from naive_all_reduce(rank, world_size)
