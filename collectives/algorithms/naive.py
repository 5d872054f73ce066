"""The naive (linear) algorithms: one message at a time, every one of them through the root.

Chan, Heimlich, Purkayastha, van de Geijn, "Collective communication: theory, practice, and experience", Concurrency
and Computation 19 (2007), begins from these.
"""

from collections.abc import Iterator

from collectives.declaration import algorithm
from collectives.step import Program, recv, recv_reduce, send


def others(rank: int, world_size: int) -> Iterator[int]:
    """Yield all ranks but one, from the next one on."""
    for distance in range(1, world_size):
        yield (rank + distance) % world_size


@algorithm("broadcast", name="naive", chunks=1)
def naive_broadcast(rank: int, world_size: int, root: int) -> Program:
    """Every rank holds root's buffer. p - 1 steps, one after the other; root sends (p - 1) n bytes."""
    if rank != root:
        yield recv(root, 0)
        return
    for peer in others(root, world_size):
        yield send(peer, 0)


@algorithm("reduce", name="naive", chunks=1)
def naive_reduce(rank: int, world_size: int, root: int) -> Program:
    """Root holds the sum of all buffers. p - 1 steps, one after the other; every other rank sends n bytes."""
    if rank != root:
        yield send(root, 0)
        return
    for peer in others(root, world_size):
        yield recv_reduce(peer, 0)


@algorithm("all_reduce", name="naive", chunks=1)
def naive_all_reduce(rank: int, world_size: int) -> Program:
    """Every rank holds the sum: by way of rank 0. 2 (p - 1) steps, one after the other; it sends (p - 1) n bytes."""
    yield from naive_reduce(rank, world_size, root=0)
    yield from naive_broadcast(rank, world_size, root=0)


@algorithm("scatter", name="naive")
def naive_scatter(rank: int, world_size: int, root: int) -> Program:
    """Rank r holds part r of root's buffer. p - 1 steps; root sends (p - 1) / p n bytes, the least possible."""
    if rank != root:
        yield recv(root, rank)
        return
    for peer in others(root, world_size):
        yield send(peer, peer)


@algorithm("gather", name="naive")
def naive_gather(rank: int, world_size: int, root: int) -> Program:
    """Root holds part r of every rank r. p - 1 steps; every other rank sends n / p bytes, the least possible."""
    if rank != root:
        yield send(root, rank)
        return
    for peer in others(root, world_size):
        yield recv(peer, peer)


@algorithm("all_gather", name="naive")
def naive_all_gather(rank: int, world_size: int) -> Program:
    """Every rank holds part i of each rank i, by way of rank 0. 2 (p - 1) steps; it sends (p - 1) n bytes."""
    yield from naive_gather(rank, world_size, root=0)
    if rank != 0:
        yield recv(0, 0, count=world_size)
        return
    for peer in others(0, world_size):
        yield send(peer, 0, count=world_size)


@algorithm("reduce_scatter", name="naive")
def naive_reduce_scatter(rank: int, world_size: int) -> Program:
    """Rank r holds part r of the sum: rank 0 reduces, then scatters. 2 (p - 1) steps; the others send n bytes."""
    if rank != 0:
        yield send(0, 0, count=world_size)
    else:
        for peer in others(0, world_size):
            yield recv_reduce(peer, 0, count=world_size)
    yield from naive_scatter(rank, world_size, root=0)


@algorithm("barrier", name="naive", chunks=1)
def naive_barrier(rank: int, world_size: int) -> Program:
    """No rank leaves before all have come: each sends to rank 0, then it to each. 2 (p - 1) steps of a token."""
    yield from naive_all_reduce(rank, world_size)
