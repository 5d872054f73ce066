"""Every rank sends before it receives. With rendezvous, all ranks wait for each other."""

from collectives import algorithm, recv_reduce, send


@algorithm("all_reduce")
def wrong(rank, world_size):
    left, right = (rank - 1) % world_size, (rank + 1) % world_size
    for step in range(world_size - 1):
        yield send(right, (rank - 1 - step) % world_size)
        yield recv_reduce(left, (rank - 2 - step) % world_size)
