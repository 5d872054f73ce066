"""The ring: every rank talks to its two neighbours only, and all of them at once.

Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", Journal of Parallel and
Distributed Computing 69 (2009).
"""

from collectives.catalogue import algorithm
from collectives.step import Program, copy, recv, recv_reduce, reduce, send


def ring_reduce_scatter(rank: int, world_size: int) -> Program:
    """Rank r holds the complete sum of chunk r. p - 1 steps, each sending one chunk of n / p bytes."""
    left, right = (rank - 1) % world_size, (rank + 1) % world_size
    for step in range(world_size - 1):
        outgoing, incoming = (rank - 1 - step) % world_size, (rank - 2 - step) % world_size
        yield send(right, outgoing), recv_reduce(left, incoming)


def ring_all_gather(rank: int, world_size: int) -> Program:
    """Every rank holds every chunk, given that rank r held chunk r. p - 1 steps, each sending n / p bytes."""
    left, right = (rank - 1) % world_size, (rank + 1) % world_size
    for step in range(world_size - 1):
        outgoing, incoming = (rank - step) % world_size, (rank - 1 - step) % world_size
        yield send(right, outgoing), recv(left, incoming)


@algorithm("all_reduce", name="ring")
def ring_all_reduce(rank: int, world_size: int) -> Program:
    """Every rank holds the sum. 2 (p - 1) steps; every rank sends 2 (p - 1) / p n bytes, the least possible."""
    yield from ring_reduce_scatter(rank, world_size)
    yield from ring_all_gather(rank, world_size)


@algorithm("all_reduce", name="unchunked_ring", chunks=1, scratch=1)
def unchunked_ring_all_reduce(rank: int, world_size: int) -> Program:
    """Every rank holds the sum, but at a price: a lesson in why the ring cuts its buffer into chunks.

    Whole buffers travel round the ring in chunk 1, and each rank adds what passes by to chunk 0. p - 1 steps of n
    bytes: (p - 1) n sent per rank, p / 2 times the ring's.
    """
    left, right = (rank - 1) % world_size, (rank + 1) % world_size
    yield copy(0, into=1)
    for _ in range(world_size - 1):
        yield send(right, 1), recv(left, 1)
        yield reduce(1, into=0)
