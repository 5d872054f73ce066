"""A barrier that notifies only neighbors, so that distant ranks are never heard."""

from collectives import algorithm, recv_reduce, send


@algorithm("barrier", chunks=1)
def wrong(rank, world_size):
    if world_size > 1:
        yield send((rank + 1) % world_size, 0), recv_reduce((rank - 1) % world_size, 0)
