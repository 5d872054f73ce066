"""Ring: every rank sends to its successor only and receives from its predecessor, all ranks at the same time.

**Steps.** The buffer has one chunk per rank. *Reduce_scatter*: in step k = 1, ..., p - 1, rank r sends the partial sum
of chunk r - k to rank r + 1, receives that of chunk r - k - 1, and adds its own data. *All_gather*: in step k = 0, ...,
p - 2, rank r sends chunk r - k and receives chunk r - k - 1. *All_reduce* runs both. All numbers are modulo p. The
*bidirectional* ring has two channels, one per direction, each for half of the chunks.

**Why it is correct.** The partial sum of chunk r starts on rank r + 1, visits every rank once, and ends on rank r after
p - 1 steps, complete. Then the complete chunk visits every rank once more.

**Source.** Patarasuk, Yuan (2009). No algorithm sends fewer bytes; the latency grows with p.

**When to choose it.** For large buffers, on most networks, because messages between neighbors need not share links. For
short messages or many ranks, use a tree, ``direct`` or ``halving_doubling``. Choose the bidirectional ring if the
network is a ring of full-duplex links; it does not send fewer bytes.

gloo's own all_reduce also consists of rings. The program in this module only predicts its time. Real ranks call gloo.
"""

from collectives.declaration import GLOO, GloosOwn, algorithm
from collectives.spec import find_spec
from collectives.step import Program, copy, on_group, recv, recv_reduce, reduce, send


def reduce_around(rank: int, world_size: int, direction: int) -> Program:
    """Run a ring reduce_scatter. Partial sums travel to the next rank (``direction=1``) or to the previous one (-1)."""
    after, before = (rank + direction) % world_size, (rank - direction) % world_size
    for step in range(1, world_size):
        outgoing, incoming = (rank - direction * step) % world_size, (rank - direction * (step + 1)) % world_size
        yield send(after, outgoing), recv_reduce(before, incoming)


def gather_around(rank: int, world_size: int, direction: int) -> Program:
    """Run a ring all_gather. Chunks travel to the next rank (``direction=1``) or to the previous one (-1)."""
    after, before = (rank + direction) % world_size, (rank - direction) % world_size
    for step in range(world_size - 1):
        outgoing, incoming = (rank - direction * step) % world_size, (rank - direction * (step + 1)) % world_size
        yield send(after, outgoing), recv(before, incoming)


def all_reduce_around(rank: int, world_size: int, direction: int) -> Program:
    """Run a ring all_reduce. Data travels to the next rank (``direction=1``) or to the previous one (-1)."""
    yield from reduce_around(rank, world_size, direction)
    yield from gather_around(rank, world_size, direction)


@algorithm("reduce_scatter", name="ring")
def ring_reduce_scatter(rank: int, world_size: int) -> Program:
    """Sum chunk r on rank r in p - 1 steps. Every rank sends n / p bytes per step."""
    yield from reduce_around(rank, world_size, direction=1)


@algorithm("all_gather", name="ring")
def ring_all_gather(rank: int, world_size: int) -> Program:
    """Copy chunk r of rank r to all ranks in p - 1 steps. Every rank sends n / p bytes per step."""
    yield from gather_around(rank, world_size, direction=1)


@algorithm("all_reduce", name="ring")
def ring_all_reduce(rank: int, world_size: int) -> Program:
    """Sum all buffers on all ranks in 2 (p - 1) steps. Every rank sends 2 (p - 1) n / p bytes, which is optimal."""
    yield from ring_reduce_scatter(rank, world_size)
    yield from ring_all_gather(rank, world_size)


def both_directions(even: Program, odd: Program, world_size: int) -> tuple[Program, Program]:
    """Return two channels, in which ``even`` uses the even chunks of the buffer, and ``odd`` uses the odd chunks."""
    ranks = range(world_size)
    return on_group(even, ranks, stride=2), on_group(odd, ranks, first_chunk=1, stride=2)


def two_per_rank(world_size: int) -> int:
    return 2 * world_size


@algorithm("reduce_scatter", name="bidirectional_ring", chunks=two_per_rank)
def bidirectional_ring_reduce_scatter(rank: int, world_size: int) -> tuple[Program, ...]:
    """Sum chunks 2r and 2r + 1 on rank r in p - 1 steps. Each of the two channels sends n / 2p bytes per step."""
    return both_directions(reduce_around(rank, world_size, 1), reduce_around(rank, world_size, -1), world_size)


@algorithm("all_gather", name="bidirectional_ring", chunks=two_per_rank)
def bidirectional_ring_all_gather(rank: int, world_size: int) -> tuple[Program, ...]:
    """Copy chunks 2r and 2r + 1 of rank r to all ranks in p - 1 steps. Each channel sends n / 2p bytes per step."""
    return both_directions(gather_around(rank, world_size, 1), gather_around(rank, world_size, -1), world_size)


@algorithm("all_reduce", name="bidirectional_ring", chunks=two_per_rank)
def bidirectional_ring_all_reduce(rank: int, world_size: int) -> tuple[Program, ...]:
    """Sum all buffers on all ranks in 2 (p - 1) steps, on two channels. Every rank sends 2 (p - 1) n / p bytes."""
    return both_directions(all_reduce_around(rank, world_size, 1), all_reduce_around(rank, world_size, -1), world_size)


@algorithm("all_reduce", name="unchunked_ring", chunks=1, scratch=1)
def unchunked_ring_all_reduce(rank: int, world_size: int) -> Program:
    """Sum all buffers on all ranks in p - 1 steps of n bytes. This shows why a ring divides its buffer into chunks.

    Whole buffers travel around the ring in scratch (chunk 1). After each step, a rank adds the received buffer to chunk
    0. Every rank sends (p - 1) n bytes, which is p / 2 times as many as in a ring with chunks.
    """
    left, right = (rank - 1) % world_size, (rank + 1) % world_size
    yield copy(0, into=1)
    for _ in range(world_size - 1):
        yield send(right, 1), recv(left, 1)
        yield reduce(1, into=0)


def gloo_all_reduce(rank: int, world_size: int) -> tuple[Program, ...]:
    """Sum all buffers on all ranks with two rings in the same direction. Each ring works on half of every chunk.

    This is gloo's default all_reduce, ``ring`` in gloo/allreduce.cc. Each rank sends to the previous one, with two
    segments of a chunk in flight. If a chunk is larger than 2 MiB, gloo divides it into more segments of at most 1 MiB,
    still with two in flight.
    """
    rings = (all_reduce_around(rank, world_size, direction=-1) for _ in range(2))
    return tuple(on_group(ring, range(world_size), first_chunk=segment, stride=2) for segment, ring in enumerate(rings))


ALL_REDUCE = GloosOwn(find_spec("all_reduce"), GLOO, gloo_all_reduce, two_per_rank)
