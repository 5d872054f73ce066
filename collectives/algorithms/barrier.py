"""Barriers by dissemination: what each rank knows of the others spreads in steps of doubling distance."""

from collectives.algorithms.tree import doublings
from collectives.declaration import algorithm
from collectives.step import Program, recv_reduce, send


@algorithm("barrier", name="dissemination", chunks=1)
def dissemination_barrier(rank: int, world_size: int) -> Program:
    """No rank leaves before all have come. ceil(log2 p) steps of a token each, the fewest possible.

    Hensgen, Finkel, Manber, "Two algorithms for barrier synchronization", International Journal of Parallel
    Programming 17 (1988). For any p; if it is no power of two, some ranks count twice, which a barrier allows.
    """
    for distance in doublings(world_size):
        yield send((rank + distance) % world_size, 0), recv_reduce((rank - distance) % world_size, 0)
