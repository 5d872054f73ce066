"""Each rank sends half of its chunks to a partner that expects a single chunk."""

from collectives import algorithm, recv, send


@algorithm("all_gather")
def wrong(rank, world_size):
    if world_size == 2:
        yield send(1 - rank, 0, count=2), recv(1 - rank, 1 - rank)
