"""Bruck's algorithms and the dissemination barrier: ceil(log2 p) steps for any number of ranks.

**Steps.** The ranks communicate at distance 1, then 2, 4, and so on. *All_gather*: at distance d, a rank sends its d
chunks to the rank d behind it and receives d other chunks from the rank d ahead. The last step sends only the missing
chunks. *All_to_all*: a rank sends to the rank d ahead. A chunk for the rank that is j ranks ahead travels in the steps
whose distances add up to j: for j = 5, it travels 1 rank, then 4. *Barrier*: a rank sends a token to the rank d ahead.

**Why it is correct.** After the step at distance d, each rank has the data of min(2 d, p) consecutive ranks, modulo p.
In an all_to_all, every j is the sum of the powers of two that are its set bits.

**Source.** Bruck, Ho, Kipnis, Upfal, Weathersby (1997); Thakur, Rabenseifner, Gropp (2005).

**When to choose it.** All_gather: for short messages, especially if p is not a power of two. All_to_all: for short
messages only, because a chunk can travel through ceil(log2 p) ranks.
"""

from collectives.algorithms.tree import consecutive_runs, doublings
from collectives.declaration import algorithm
from collectives.step import Program, copy, recv, recv_reduce, send


@algorithm("barrier", name="dissemination", chunks=1)
def dissemination_barrier(rank: int, world_size: int) -> Program:
    """Wait until all ranks have entered, in ceil(log2 p) steps, which is optimal. A rank sends one token per step.

    If p is not a power of two, a rank can learn twice that another rank has entered. This does no harm. See Hensgen,
    Finkel, Manber, "Two algorithms for barrier synchronization", Int. J. of Parallel Programming 17 (1988).
    """
    for distance in doublings(world_size):
        yield send((rank + distance) % world_size, 0), recv_reduce((rank - distance) % world_size, 0)


@algorithm("all_gather", name="bruck")
def bruck_all_gather(rank: int, world_size: int) -> Program:
    """Copy chunk r of rank r to all ranks in ceil(log2 p) steps. A rank sends (p - 1) n / p bytes, which is optimal.

    The chunks that a rank has are consecutive and start with its own. If they wrap around the end of the buffer, they
    are sent as two messages, so the rotation of the original algorithm is not needed.
    """
    for distance in doublings(world_size):
        count = min(distance, world_size - distance)
        behind, ahead = (rank - distance) % world_size, (rank + distance) % world_size
        sends = [send(behind, *run) for run in consecutive_runs(rank, count, world_size)]
        yield (*sends, *(recv(ahead, *run) for run in consecutive_runs(ahead, count, world_size)))


@algorithm("all_to_all", name="bruck", scratch=lambda world_size: 2 * (world_size // 2))
def bruck_all_to_all(rank: int, world_size: int) -> Program:
    """Swap chunk i of rank r with chunk r of rank i in ceil(log2 p) steps, each with messages of about n / 2 bytes.

    First, a rank moves its chunk for the rank that is j ranks ahead to position j. At each distance d, it packs the
    chunks at positions whose bit d is set into scratch. It sends them d ranks ahead, and unpacks the chunks that it
    receives. After the last step, position j has the chunk from the rank that is j ranks behind. Finally, each chunk
    moves to the index of the rank that it came from.
    """
    if world_size == 1:
        return
    outgoing, incoming = world_size, world_size + world_size // 2
    yield tuple(copy((rank + position) % world_size, into=position) for position in range(world_size))
    for distance in doublings(world_size):
        positions = [position for position in range(world_size) if position & distance]
        yield tuple(copy(position, into=outgoing + k) for k, position in enumerate(positions))
        ahead, behind = (rank + distance) % world_size, (rank - distance) % world_size
        yield send(ahead, outgoing, len(positions)), recv(behind, incoming, len(positions))
        yield tuple(copy(incoming + k, into=position) for k, position in enumerate(positions))
    yield tuple(copy(position, into=(rank - position) % world_size) for position in range(world_size))
