"""A broadcast that ignores its root and starts at rank 0."""

from collectives import algorithm, recv, send


@algorithm("broadcast", chunks=1)
def wrong(rank, world_size, root):
    if rank > 0:
        yield recv(rank - 1, 0)
    if rank < world_size - 1:
        yield send(rank + 1, 0)
