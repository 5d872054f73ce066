"""One message overwrites a chunk while other messages of the same step are reduced into it."""

from collectives import algorithm, recv, recv_reduce, send


@algorithm("all_reduce", chunks=1)
def wrong(rank, world_size):
    others = [peer for peer in range(world_size) if peer != rank]
    if others:
        sends = [send(peer, 0) for peer in others]
        yield (*sends, recv(others[0], 0), *(recv_reduce(peer, 0) for peer in others))
