"""A ring that sends the chunk next to the one that its neighbor expects."""

from collectives import algorithm, recv_reduce, send


@algorithm("all_reduce")
def wrong(rank, world_size):
    left, right = (rank - 1) % world_size, (rank + 1) % world_size
    for step in range(world_size - 1):
        yield send(right, (rank - step) % world_size), recv_reduce(left, (rank - 2 - step) % world_size)
