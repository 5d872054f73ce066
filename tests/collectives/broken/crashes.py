"""A program that divides by zero if there are two ranks."""

from collectives import algorithm, recv, send


@algorithm("broadcast", chunks=1)
def wrong(rank, world_size, root):
    if world_size > 1:
        yield send((rank + 1) % (world_size - 2), 0), recv((rank - 1) % world_size, 0)
