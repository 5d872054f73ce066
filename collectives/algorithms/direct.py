"""Direct ("all pairs") algorithms: every rank sends to every other at once, so that latency is paid once a step.

Cowan, Maleki, Musuvathi, Saarikivi, Xiong, "MSCCLang: Microsoft collective communication language", ASPLOS 2023, where
the all-reduce is called All Pairs and is best for short messages; in MSCCL++ too. all_to_all is how NCCL's users write
it, by grouped sends and receives. The network sorts out who waits for whom.
"""

from collections.abc import Iterator

from collectives.declaration import algorithm
from collectives.step import Program, recv, recv_reduce, send


def partners(rank: int, world_size: int) -> Iterator[tuple[int, int]]:
    """Yield whom a rank sends to and whom it receives from, each of the others once: first its neighbours."""
    for distance in range(1, world_size):
        yield (rank + distance) % world_size, (rank - distance) % world_size


@algorithm("reduce_scatter", name="direct")
def direct_reduce_scatter(rank: int, world_size: int) -> Program:
    """Rank r holds part r of the sum. One step: every rank sends p - 1 messages of n / p bytes at once.

    Everyone's part r arrives at rank r, which reduces them one after the other.
    """
    messages = [(send(to, to), recv_reduce(source, rank)) for to, source in partners(rank, world_size)]
    if messages:
        yield tuple(operation for pair in messages for operation in pair)


@algorithm("all_gather", name="direct")
def direct_all_gather(rank: int, world_size: int) -> Program:
    """Every rank holds part i of each rank i. One step, in which every rank sends its n / p bytes to all others."""
    messages = [(send(to, rank), recv(source, source)) for to, source in partners(rank, world_size)]
    if messages:
        yield tuple(operation for pair in messages for operation in pair)


@algorithm("all_reduce", name="direct")
def direct_all_reduce(rank: int, world_size: int) -> Program:
    """Every rank holds the sum. 2 steps of p - 1 messages at once; it sends 2 (p - 1) / p n bytes, the least possible.

    The fewest steps of all that send the least; but all ranks send to each at once, which a network must bear.
    """
    yield from direct_reduce_scatter(rank, world_size)
    yield from direct_all_gather(rank, world_size)


@algorithm("all_to_all", name="direct")
def direct_all_to_all(rank: int, world_size: int) -> Program:
    """Part i of rank r is part r of rank i. One step: every rank sends p - 1 messages of n / p bytes at once."""
    messages = [(send(to, to), recv(source, source)) for to, source in partners(rank, world_size)]
    if messages:
        yield tuple(operation for pair in messages for operation in pair)
