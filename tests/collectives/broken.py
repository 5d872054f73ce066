"""Programs with one mistake each, which the name states. A comment marks the line that its error names."""

from collectives import algorithm, copy, recv, recv_reduce, reduce, send
from collectives.algorithms.ring import all_reduce_around


@algorithm("broadcast", chunks=1)
def crashes(rank, world_size, root):
    if world_size > 1:
        yield send((rank + 1) % (world_size - 2), 0), recv((rank - 1) % world_size, 0)  # here


@algorithm("all_reduce", chunks=1)
def double_count(rank, world_size):
    distance = 1
    while distance < world_size:
        yield send((rank + distance) % world_size, 0), recv_reduce((rank - distance) % world_size, 0)  # here
        distance *= 2


@algorithm("all_reduce", chunks=1, scratch=1)
def empty_scratch(rank, world_size):
    yield reduce(1, into=0)  # here


@algorithm("all_reduce")
def off_by_one_chunk(rank, world_size):
    left, right = (rank - 1) % world_size, (rank + 1) % world_size
    for step in range(world_size - 1):
        yield send(right, (rank - step) % world_size), recv_reduce(left, (rank - 2 - step) % world_size)  # here


@algorithm("reduce_scatter")  # here
def off_by_one_step(rank, world_size):
    left, right = (rank - 1) % world_size, (rank + 1) % world_size
    for step in range(world_size - 2):
        yield send(right, (rank - 1 - step) % world_size), recv_reduce(left, (rank - 2 - step) % world_size)


@algorithm("all_gather")
def other_place(rank, world_size):
    if world_size > 1:
        yield copy(rank, into=(rank + 1) % world_size)  # here


@algorithm("all_reduce")  # here
def overlapping_channels(rank, world_size):
    return all_reduce_around(rank, world_size, 1), all_reduce_around(rank, world_size, -1)


@algorithm("all_reduce")
def send_before_receive(rank, world_size):
    left, right = (rank - 1) % world_size, (rank + 1) % world_size
    for step in range(world_size - 1):
        yield send(right, (rank - 1 - step) % world_size)  # here
        yield recv_reduce(left, (rank - 2 - step) % world_size)


@algorithm("barrier", chunks=1)
def token_lost(rank, world_size):
    if world_size > 1:
        yield send((rank + 1) % world_size, 0), recv_reduce((rank - 1) % world_size, 0)  # here


@algorithm("scatter", chunks=1)  # here
def too_few_chunks(rank, world_size, root):
    if rank == root:
        yield tuple(send(peer, 0) for peer in range(world_size) if peer != root)
    else:
        yield recv(root, 0)


@algorithm("all_gather")
def uneven_sizes(rank, world_size):
    if world_size == 2:
        yield send(1 - rank, 0, count=2), recv(1 - rank, 1 - rank)  # here


@algorithm("reduce", chunks=1)
def unmatched_receive(rank, world_size, root):
    for peer in range(world_size):
        if rank == root and peer != root:
            yield recv_reduce(peer, 0)  # here
        elif peer == rank != root and rank < world_size - 1:
            yield send(root, 0)


@algorithm("all_reduce", chunks=1)
def written_twice(rank, world_size):
    others = [peer for peer in range(world_size) if peer != rank]
    if others:
        sends = [send(peer, 0) for peer in others]
        yield (*sends, recv(others[0], 0), *(recv_reduce(peer, 0) for peer in others))  # here


@algorithm("all_to_all")
def wrong_place(rank, world_size):
    others = [peer for peer in range(world_size) if peer != rank]
    if others:
        sends = [send(peer, peer) for peer in others]
        yield (*sends, *(recv(peer, place) for peer, place in zip(others, reversed(others), strict=True)))  # here


@algorithm("broadcast", chunks=1)
def wrong_root(rank, world_size, root):
    if rank > 0:
        yield recv(rank - 1, 0)
    if rank < world_size - 1:
        yield send(rank + 1, 0)  # here
