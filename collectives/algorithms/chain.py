"""The pipelined chain: the buffer goes from rank to rank in slices; a rank sends one on while it receives the next.

Chan et al. (2007); Patarasuk, Faraj, Yuan, "Pipelined broadcast on Ethernet switched clusters", IPDPS 2006.
With s slices it takes p + s - 2 steps of n / s bytes: more slices fill the chain better, fewer cost less latency; the
best number is the square root of (p - 2) n beta / alpha.
"""

from collectives.declaration import algorithm
from collectives.step import Program, recv, recv_reduce, send


def chunks_of_chain(world_size: int, slices: int) -> int:
    """Return the number of chunks: one for each slice."""
    return slices


@algorithm("broadcast", name="chain", chunks=chunks_of_chain)
def chain_broadcast(rank: int, world_size: int, root: int, slices: int = 8) -> Program:
    """Every rank holds root's buffer. p + s - 2 steps of n / s bytes; all but the last send n bytes, the least."""
    position = (rank - root) % world_size
    before, after = (rank - 1) % world_size, (rank + 1) % world_size
    for number in range(slices + 1):
        incoming = [recv(before, number)] if position > 0 and number < slices else []
        outgoing = [send(after, number - 1)] if position < world_size - 1 and number > 0 else []
        if incoming or outgoing:
            yield (*incoming, *outgoing)


@algorithm("reduce", name="chain", chunks=chunks_of_chain)
def chain_reduce(rank: int, world_size: int, root: int, slices: int = 8) -> Program:
    """Root holds the sum. p + s - 2 steps of n / s bytes; every rank but the root sends n bytes, the least possible."""
    position = (rank - root) % world_size
    before, after = (rank - 1) % world_size, (rank + 1) % world_size
    for number in range(slices + 1):
        incoming = [recv_reduce(after, number)] if position < world_size - 1 and number < slices else []
        outgoing = [send(before, number - 1)] if position > 0 and number > 0 else []
        if incoming or outgoing:
            yield (*incoming, *outgoing)


@algorithm("all_reduce", name="chain", chunks=chunks_of_chain)
def chain_all_reduce(rank: int, world_size: int, slices: int = 8) -> Program:
    """Every rank holds the sum: down the chain to rank 0 and back. 2 (p + s - 2) steps; ranks send up to 2 n bytes."""
    yield from chain_reduce(rank, world_size, root=0, slices=slices)
    yield from chain_broadcast(rank, world_size, root=0, slices=slices)
