"""An exchange after which every part has arrived, but in the wrong place."""

from collectives import algorithm, recv, send


@algorithm("all_to_all")
def wrong(rank, world_size):
    others = [peer for peer in range(world_size) if peer != rank]
    if others:
        sends = [send(peer, peer) for peer in others]
        yield (*sends, *(recv(peer, place) for peer, place in zip(others, reversed(others), strict=True)))
