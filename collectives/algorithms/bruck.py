"""Bruck's algorithms and the barrier by dissemination: ceil(log2 p) steps for any number of ranks.

Bruck, Ho, Kipnis, Upfal, Weathersby, "Efficient algorithms for all-to-all communications in multiport message-passing
systems", IEEE Transactions on Parallel and Distributed Systems 8 (1997); Thakur et al. (2005).
"""

from collectives.algorithms.tree import consecutive_runs, doublings
from collectives.declaration import algorithm
from collectives.step import Program, copy, recv, recv_reduce, send


@algorithm("barrier", name="dissemination", chunks=1)
def dissemination_barrier(rank: int, world_size: int) -> Program:
    """No rank leaves before all have come. ceil(log2 p) steps of a token each, the fewest possible.

    Hensgen, Finkel, Manber, "Two algorithms for barrier synchronization", International Journal of Parallel
    Programming 17 (1988). For any p; if it is no power of two, some ranks count twice, which a barrier allows.
    """
    for distance in doublings(world_size):
        yield send((rank + distance) % world_size, 0), recv_reduce((rank - distance) % world_size, 0)


@algorithm("all_gather", name="bruck")
def bruck_all_gather(rank: int, world_size: int) -> Program:
    """Every rank holds part i of each rank i. ceil(log2 p) steps, (p - 1) / p n bytes sent: both the least.

    A rank always holds parts from its own on, round the ring of parts. Where they wrap round the end of the buffer
    they travel as two messages; a rotation, as in the original, is not needed.
    """
    for held in doublings(world_size):
        count = min(held, world_size - held)
        behind, ahead = (rank - held) % world_size, (rank + held) % world_size
        sends = [send(behind, *run) for run in consecutive_runs(rank, count, world_size)]
        yield (*sends, *(recv(ahead, *run) for run in consecutive_runs(ahead, count, world_size)))


@algorithm("all_to_all", name="bruck", scratch=lambda world_size: 2 * (world_size // 2))
def bruck_all_to_all(rank: int, world_size: int) -> Program:
    """Part i of rank r is part r of rank i. ceil(log2 p) steps, the fewest possible, of about n / 2 bytes each.

    Parts are rotated so that position j holds what must go j ranks ahead. Each set bit of j is a hop: in the step of
    ``distance`` all positions with that bit are packed, sent that far ahead, and unpacked. In the end position j
    holds what came from j ranks behind.
    """
    if world_size == 1:
        return
    outgoing, incoming = world_size, world_size + world_size // 2
    yield tuple(copy((rank + position) % world_size, into=position) for position in range(world_size))
    for distance in doublings(world_size):
        positions = [position for position in range(world_size) if position & distance]
        yield tuple(copy(position, into=outgoing + k) for k, position in enumerate(positions))
        ahead, behind = (rank + distance) % world_size, (rank - distance) % world_size
        yield send(ahead, outgoing, len(positions)), recv(behind, incoming, len(positions))
        yield tuple(copy(incoming + k, into=position) for k, position in enumerate(positions))
    yield tuple(copy(position, into=(rank - position) % world_size) for position in range(world_size))
