"""The naive (linear) algorithms: one message at a time, every one of them through the root.

Chan, Heimlich, Purkayastha, van de Geijn, "Collective communication: theory, practice, and experience", Concurrency
and Computation 19 (2007), section 4, begins from these.
"""

from collectives.catalogue import algorithm
from collectives.step import Program, recv, recv_reduce, send


@algorithm("broadcast", name="naive", chunks=1)
def naive_broadcast(rank: int, world_size: int, root: int) -> Program:
    """Every rank holds root's buffer. world_size - 1 steps, one after the other; root sends (p - 1) n bytes."""
    for peer in range(world_size):
        if peer != root and rank == root:
            yield send(peer, 0)
        elif peer == rank != root:
            yield recv(root, 0)


@algorithm("reduce", name="naive", chunks=1)
def naive_reduce(rank: int, world_size: int, root: int) -> Program:
    """Root holds the sum of all buffers. world_size - 1 steps, one after the other; every other rank sends n bytes."""
    for peer in range(world_size):
        if peer != root and rank == root:
            yield recv_reduce(peer, 0)
        elif peer == rank != root:
            yield send(root, 0)


@algorithm("all_reduce", name="naive", chunks=1)
def naive_all_reduce(rank: int, world_size: int) -> Program:
    """Every rank holds the sum: rank 0 receives from each in turn, then sends to each. It sends (p - 1) n bytes."""
    yield from naive_reduce(rank, world_size, root=0)
    yield from naive_broadcast(rank, world_size, root=0)
