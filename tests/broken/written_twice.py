"""Everyone's contribution is reduced into the same chunk in one step, in no order."""

from collectives import algorithm, recv_reduce, send


@algorithm("all_reduce", chunks=1)
def wrong(rank, world_size):
    others = [peer for peer in range(world_size) if peer != rank]
    if others:
        yield (*(send(peer, 0) for peer in others), *(recv_reduce(peer, 0) for peer in others))
