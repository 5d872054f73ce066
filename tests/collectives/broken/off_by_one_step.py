"""A ring that stops one step too early."""

from collectives import algorithm, recv_reduce, send


@algorithm("reduce_scatter")
def wrong(rank, world_size):
    left, right = (rank - 1) % world_size, (rank + 1) % world_size
    for step in range(world_size - 2):
        yield send(right, (rank - 1 - step) % world_size), recv_reduce(left, (rank - 2 - step) % world_size)
