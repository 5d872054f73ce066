"""Direct ("all pairs") and pairwise algorithms: every rank exchanges one message with every other rank.

**Steps.** *Direct* sends the messages to all other ranks in a single step. *Pairwise* has a step for each message: in
every step the ranks form pairs that swap their chunks. The pairs follow the circle method of round-robin tournaments.

**Why it is correct.** Each rank receives exactly one message from each other rank, with the chunk that it needs. In a
reduce_scatter, rank r adds the p - 1 copies of chunk r in a fixed order, so its result does not depend on the order of
arrival.

**Source.** Cowan et al. (2023), who call the all_reduce All Pairs; Thakur, Rabenseifner, Gropp (2005) for *pairwise*.

**When to choose it.** Direct: for short messages, and on a switch without contention. NCCL programs write all_to_all
this way, by grouped sends and receives. Pairwise: if posting many messages at once is expensive or congests the
network.
"""

from collections.abc import Iterator

from collectives.declaration import algorithm
from collectives.step import Program, recv, recv_reduce, send


def partners(rank: int, world_size: int) -> Iterator[tuple[int, int]]:
    """Yield (destination, source) for d = 1 to ``world_size - 1``: the ranks d positions after and before ``rank``."""
    for distance in range(1, world_size):
        yield (rank + distance) % world_size, (rank - distance) % world_size


@algorithm("reduce_scatter", name="direct")
def direct_reduce_scatter(rank: int, world_size: int) -> Program:
    """Sum chunk r on rank r in one step. Every rank sends a message of n / p bytes to each of the other ranks."""
    messages = [(send(to, to), recv_reduce(source, rank)) for to, source in partners(rank, world_size)]
    if messages:
        yield tuple(operation for pair in messages for operation in pair)


@algorithm("all_gather", name="direct")
def direct_all_gather(rank: int, world_size: int) -> Program:
    """Copy chunk r of rank r to all ranks in one step. Every rank sends its n / p bytes to each of the other ranks."""
    messages = [(send(to, rank), recv(source, source)) for to, source in partners(rank, world_size)]
    if messages:
        yield tuple(operation for pair in messages for operation in pair)


@algorithm("all_reduce", name="direct")
def direct_all_reduce(rank: int, world_size: int) -> Program:
    """Sum all buffers on all ranks in 2 steps. Every rank sends 2 (p - 1) n / p bytes, which is optimal.

    All ranks send to the same rank at once, which can congest a network.
    """
    yield from direct_reduce_scatter(rank, world_size)
    yield from direct_all_gather(rank, world_size)


@algorithm("all_to_all", name="direct")
def direct_all_to_all(rank: int, world_size: int) -> Program:
    """Swap chunk i of rank r with chunk r of rank i in one step. Every rank sends (p - 1) n / p bytes."""
    messages = [(send(to, to), recv(source, source)) for to, source in partners(rank, world_size)]
    if messages:
        yield tuple(operation for pair in messages for operation in pair)


def opponent(rank: int, number: int, world_size: int) -> int:
    """Return the rank that ``rank`` is paired with in a round of pairwise exchanges, or ``rank`` itself if it is idle.

    ``number`` is the number of the round. If the number of ranks is odd, one rank is idle in each round.
    """
    circle = world_size - 1 + world_size % 2
    if rank == circle:  # the player who stays, if the number of ranks is even
        return number * (circle + 1) // 2 % circle
    other = (number - rank) % circle
    if world_size % 2:
        return other
    return other + (other == rank) * (circle - rank)  # the player who would meet itself meets the one who stays


@algorithm("all_to_all", name="pairwise")
def pairwise_all_to_all(rank: int, world_size: int) -> Program:
    """Swap chunk i of rank r with chunk r of rank i in p - 1 steps of n / p bytes, or p steps if p is odd.

    Every rank sends (p - 1) n / p bytes, which is optimal. No scratch is needed.
    """
    for number in range(world_size - 1 + world_size % 2):
        peer = opponent(rank, number, world_size)
        if peer != rank:
            yield send(peer, peer), recv(peer, peer)
