"""Two rings on two channels that should each use half of the chunks, but overlap."""

from collectives import algorithm
from collectives.algorithms.ring import all_reduce_around


@algorithm("all_reduce")
def wrong(rank, world_size):
    return all_reduce_around(rank, world_size, 1), all_reduce_around(rank, world_size, -1)
