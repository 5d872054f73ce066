"""Recursive doubling for any number of ranks: unless it is a power of two, some contributions count twice."""

from collectives import algorithm, recv_reduce, send


@algorithm("all_reduce", chunks=1)
def wrong(rank, world_size):
    distance = 1
    while distance < world_size:
        yield send((rank + distance) % world_size, 0), recv_reduce((rank - distance) % world_size, 0)
        distance *= 2
