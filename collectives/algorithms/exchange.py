"""Pairwise exchange: in every step the ranks form pairs, and the two of a pair swap what they have for each other.

Thakur, Rabenseifner, Gropp (2005), for powers of two. The pairs for other numbers of ranks are those of a
round-robin tournament (the circle method): one player stays, the others move on by one chair each round.
"""

from collectives.declaration import algorithm
from collectives.step import Program, recv, send


def opponent(rank: int, number: int, world_size: int) -> int:
    """Return the partner of a rank in a round of the tournament; itself if it sits out, as one of an odd p does."""
    circle = world_size - 1 + world_size % 2
    if rank == circle:  # the one who stays, with an even number of ranks
        return number * (circle + 1) // 2 % circle
    other = (number - rank) % circle
    if world_size % 2:
        return other
    return other + (other == rank) * (circle - rank)  # who would meet itself meets the one who stays; for all at once


@algorithm("all_to_all", name="pairwise")
def pairwise_all_to_all(rank: int, world_size: int) -> Program:
    """Part i of rank r is part r of rank i. p - 1 steps, or p where p is odd, of n / p bytes; nothing is sent twice.

    Every rank sends (p - 1) / p n bytes, the least possible, and needs no scratch.
    """
    for number in range(world_size - 1 + world_size % 2):
        peer = opponent(rank, number, world_size)
        if peer != rank:
            yield send(peer, peer), recv(peer, peer)
