"""A scatter whose buffer has fewer chunks than there are ranks."""

from collectives import algorithm, recv, send


@algorithm("scatter", chunks=1)
def wrong(rank, world_size, root):
    if rank == root:
        yield tuple(send(peer, 0) for peer in range(world_size) if peer != root)
    else:
        yield recv(root, 0)
