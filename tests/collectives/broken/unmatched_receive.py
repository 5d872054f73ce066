"""The root waits for a message from every rank, but the last rank sends none."""

from collectives import algorithm, recv_reduce, send


@algorithm("reduce", chunks=1)
def wrong(rank, world_size, root):
    for peer in range(world_size):
        if rank == root and peer != root:
            yield recv_reduce(peer, 0)
        elif peer == rank != root and rank < world_size - 1:
            yield send(root, 0)
