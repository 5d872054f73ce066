"""The ring: every rank talks to its two neighbours only, and all of them at once.

Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", Journal of Parallel and
Distributed Computing 69 (2009). The bidirectional ring sends one half in each direction: on a network that carries both
directions at once it needs no fewer bytes, but every cable of a physical ring is used both ways. What gloo itself does
is made of rings, too: beside ours it is predicted, and measured by one call.
"""

from collectives.declaration import GLOO, GloosOwn, algorithm
from collectives.spec import find_spec
from collectives.step import Program, copy, on_group, recv, recv_reduce, reduce, send


def reduce_around(rank: int, world_size: int, direction: int) -> Program:
    """Leave the sum of chunk r on rank r. Sums travel to the rank ``direction`` further on, which is 1 or -1."""
    onwards, before = (rank + direction) % world_size, (rank - direction) % world_size
    for step in range(1, world_size):
        outgoing, incoming = (rank - direction * step) % world_size, (rank - direction * (step + 1)) % world_size
        yield send(onwards, outgoing), recv_reduce(before, incoming)


def gather_around(rank: int, world_size: int, direction: int) -> Program:
    """Leave every chunk on every rank, given that rank r holds chunk r; ``direction`` is as in ``reduce_around``."""
    onwards, before = (rank + direction) % world_size, (rank - direction) % world_size
    for step in range(world_size - 1):
        outgoing, incoming = (rank - direction * step) % world_size, (rank - direction * (step + 1)) % world_size
        yield send(onwards, outgoing), recv(before, incoming)


def all_reduce_around(rank: int, world_size: int, direction: int) -> Program:
    """Leave the sum of every chunk on every rank; ``direction`` is as in ``reduce_around``."""
    yield from reduce_around(rank, world_size, direction)
    yield from gather_around(rank, world_size, direction)


@algorithm("reduce_scatter", name="ring")
def ring_reduce_scatter(rank: int, world_size: int) -> Program:
    """Rank r holds the complete sum of chunk r. p - 1 steps, each sending one chunk of n / p bytes."""
    yield from reduce_around(rank, world_size, direction=1)


@algorithm("all_gather", name="ring")
def ring_all_gather(rank: int, world_size: int) -> Program:
    """Every rank holds every chunk, given that rank r held chunk r. p - 1 steps, each sending n / p bytes."""
    yield from gather_around(rank, world_size, direction=1)


@algorithm("all_reduce", name="ring")
def ring_all_reduce(rank: int, world_size: int) -> Program:
    """Every rank holds the sum. 2 (p - 1) steps; every rank sends 2 (p - 1) / p n bytes, the least possible."""
    yield from ring_reduce_scatter(rank, world_size)
    yield from ring_all_gather(rank, world_size)


def both_directions(upwards: Program, downwards: Program, world_size: int) -> tuple[Program, Program]:
    """Return two programs as channels, the first on the even chunks and the second on the odd ones."""
    everyone = range(world_size)
    return on_group(upwards, everyone, stride=2), on_group(downwards, everyone, first_chunk=1, stride=2)


def two_a_rank(world_size: int) -> int:
    """Return two chunks for each rank: one for each channel."""
    return 2 * world_size


@algorithm("reduce_scatter", name="bidirectional_ring", chunks=two_a_rank)
def bidirectional_ring_reduce_scatter(rank: int, world_size: int) -> tuple[Program, ...]:
    """Rank r holds part r of the sum. p - 1 steps on each of two channels, each sending n / 2p bytes."""
    return both_directions(reduce_around(rank, world_size, 1), reduce_around(rank, world_size, -1), world_size)


@algorithm("all_gather", name="bidirectional_ring", chunks=two_a_rank)
def bidirectional_ring_all_gather(rank: int, world_size: int) -> tuple[Program, ...]:
    """Every rank holds part i of each rank i. p - 1 steps on each of two channels, each sending n / 2p bytes."""
    return both_directions(gather_around(rank, world_size, 1), gather_around(rank, world_size, -1), world_size)


@algorithm("all_reduce", name="bidirectional_ring", chunks=two_a_rank)
def bidirectional_ring_all_reduce(rank: int, world_size: int) -> tuple[Program, ...]:
    """Every rank holds the sum. 2 (p - 1) steps on each of two channels; every rank sends 2 (p - 1) / p n bytes."""
    return both_directions(all_reduce_around(rank, world_size, 1), all_reduce_around(rank, world_size, -1), world_size)


@algorithm("all_reduce", name="unchunked_ring", chunks=1, scratch=1)
def unchunked_ring_all_reduce(rank: int, world_size: int) -> Program:
    """Every rank holds the sum. p - 1 steps of n bytes: the reason why the ring cuts its buffer into chunks.

    Whole buffers travel round the ring in chunk 1, and each rank adds what passes by to chunk 0; between the steps it
    does so, one more of copying comes first. It sends (p - 1) n bytes, p / 2 times the ring's.
    """
    left, right = (rank - 1) % world_size, (rank + 1) % world_size
    yield copy(0, into=1)
    for _ in range(world_size - 1):
        yield send(right, 1), recv(left, 1)
        yield reduce(1, into=0)


def gloo_all_reduce(rank: int, world_size: int) -> tuple[Program, ...]:
    """Every rank holds the sum. Two rings in the same direction, each on one half of every part, n / 2p bytes a step.

    ``torch.distributed.all_reduce`` over gloo takes gloo's default, a ring that has two segments of a part under way
    (``ring`` in gloo/allreduce.cc), from each rank to the one before it. Above 2 MiB a part gloo has more segments
    than two, of at most 1 MiB; here as there two are under way.
    """
    rings = (all_reduce_around(rank, world_size, direction=-1) for _ in range(2))
    return tuple(on_group(ring, range(world_size), first_chunk=segment, stride=2) for segment, ring in enumerate(rings))


ALL_REDUCE = GloosOwn(find_spec("all_reduce"), GLOO, gloo_all_reduce, two_a_rank)
