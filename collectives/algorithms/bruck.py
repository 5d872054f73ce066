"""Bruck's algorithms: ceil(log2 p) steps for any number of ranks.

Bruck, Ho, Kipnis, Upfal, Weathersby, "Efficient algorithms for all-to-all communications in multiport message-passing
systems", IEEE Transactions on Parallel and Distributed Systems 8 (1997); Thakur et al. (2005).
"""

from collectives.algorithms.tree import doublings, runs
from collectives.declaration import algorithm
from collectives.step import Program, copy, recv, send


@algorithm("all_gather", name="bruck")
def bruck_all_gather(rank: int, world_size: int) -> Program:
    """Every rank holds part i of each rank i. ceil(log2 p) steps, (p - 1) / p n bytes sent: both the least.

    A rank always holds parts from its own on, round the ring of parts. Where they wrap round the end of the buffer
    they travel as two messages; a rotation, as in the original, is not needed.
    """
    for held in doublings(world_size):
        count = min(held, world_size - held)
        behind, ahead = (rank - held) % world_size, (rank + held) % world_size
        sends = [send(behind, *run) for run in runs(rank, count, world_size)]
        yield (*sends, *(recv(ahead, *run) for run in runs(ahead, count, world_size)))


@algorithm("all_to_all", name="bruck", scratch=lambda world_size: 2 * (world_size // 2))
def bruck_all_to_all(rank: int, world_size: int) -> Program:
    """Part i of rank r is part r of rank i. ceil(log2 p) steps, the fewest possible, of about n / 2 bytes each.

    Parts are rotated so that place j holds what must go j ranks ahead. Each set bit of j is a hop: in the step of
    ``distance`` all places with that bit are packed, sent that far ahead, and unpacked. In the end place j holds what
    came from j ranks behind.
    """
    if world_size == 1:
        return
    outgoing, incoming = world_size, world_size + world_size // 2
    yield tuple(copy((rank + place) % world_size, into=place) for place in range(world_size))
    for distance in doublings(world_size):
        places = [place for place in range(world_size) if place & distance]
        yield tuple(copy(place, into=outgoing + k) for k, place in enumerate(places))
        ahead, behind = (rank + distance) % world_size, (rank - distance) % world_size
        yield send(ahead, outgoing, len(places)), recv(behind, incoming, len(places))
        yield tuple(copy(incoming + k, into=place) for k, place in enumerate(places))
    yield tuple(copy(place, into=(rank - place) % world_size) for place in range(world_size))
