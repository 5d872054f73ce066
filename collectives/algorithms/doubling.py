"""Recursive doubling and halving: partners at distance 1, 2, 4, ..., whose numbers differ in one bit.

Thakur, Rabenseifner, Gropp (2005); Rabenseifner, "Optimization of collective reduction
operations", ICCS 2004. They are for powers of two. For other numbers the ranks beyond the largest power of two are
*spare*: rank core + i sends its data to rank i, waits, and receives the result from it.
"""

from collections.abc import Iterator

from collectives.declaration import algorithm
from collectives.step import Program, recv, recv_reduce, send


def core_of(world_size: int) -> int:
    """Return the largest power of two up to ``world_size``."""
    return 1 << (world_size.bit_length() - 1)


def halve(rank: int, core: int) -> Program:
    """Leave the sum of chunk r on rank r of ``core``, a power of two. Each step halves the chunks that it works on."""
    first, count = 0, core
    while count > 1:
        count //= 2
        keep = first + (rank & count)
        yield send(rank ^ count, keep ^ count, count), recv_reduce(rank ^ count, keep, count)
        first = keep


def double(rank: int, core: int) -> Program:
    """Leave all ``core`` chunks on every rank, given that rank r holds chunk r. Each step doubles what a rank holds."""
    first, count = rank, 1
    while count < core:
        yield send(rank ^ count, first, count), recv(rank ^ count, first ^ count, count)
        first, count = first & ~count, 2 * count


def exchange_all(rank: int, core: int) -> Program:
    """Leave the sum of chunk 0 on every rank: partners exchange what they have and reduce it."""
    distance = 1
    while distance < core:
        yield send(rank ^ distance, 0), recv_reduce(rank ^ distance, 0)
        distance *= 2


def with_spares(inner: Program, rank: int, world_size: int, chunks: int) -> Program:
    """Run ``inner``, the all-reduce of the core ranks; spare ranks send all chunks before it and receive them after."""
    core = core_of(world_size)
    if rank >= core:
        yield send(rank - core, 0, chunks)
        yield recv(rank - core, 0, chunks)
        return
    if rank + core < world_size:
        yield recv_reduce(rank + core, 0, chunks)
    yield from inner
    if rank + core < world_size:
        yield send(rank + core, 0, chunks)


@algorithm("all_reduce", name="recursive_doubling", chunks=1)
def recursive_doubling_all_reduce(rank: int, world_size: int) -> Program:
    """Every rank holds the sum. log2 p steps of n bytes, the fewest possible; two more where p is no power of two."""
    yield from with_spares(exchange_all(rank, core_of(world_size)), rank, world_size, chunks=1)


def halve_and_double(rank: int, core: int) -> Program:
    """Leave the sum of each of ``core`` chunks on every rank."""
    yield from halve(rank, core)
    yield from double(rank, core)


@algorithm("all_reduce", name="halving_doubling", chunks=core_of)
def halving_doubling_all_reduce(rank: int, world_size: int) -> Program:
    """Every rank holds the sum (Rabenseifner). 2 log2 p steps; every rank sends 2 (p - 1) / p n bytes, the least.

    Where p is no power of two there are two more steps of n bytes.
    """
    core = core_of(world_size)
    yield from with_spares(halve_and_double(rank, core), rank, world_size, chunks=core)


def runs_of_parts(first: int, count: int, world_size: int) -> Iterator[tuple[int, int]]:
    """Yield (first chunk, count) of the parts of ``count`` core ranks from ``first`` on, then of their spare ranks."""
    core = core_of(world_size)
    yield first, count
    spare = min(count, world_size - core - first)
    if spare > 0:
        yield core + first, spare


@algorithm("all_gather", name="recursive_doubling")
def recursive_doubling_all_gather(rank: int, world_size: int) -> Program:
    """Every rank holds part i of each rank i. log2 p steps; every rank sends (p - 1) / p n bytes, the least possible.

    Where p is no power of two there are two more steps, and ranks with a spare one send nearly 2 n bytes.
    """
    core = core_of(world_size)
    if rank >= core:
        after = world_size - rank - 1
        yield send(rank - core, rank)
        yield recv(rank - core, 0, rank), *([recv(rank - core, rank + 1, after)] if after else [])
        return
    spare = rank + core
    if spare < world_size:
        yield recv(spare, spare)
    for step in double(rank, core):
        outgoing, incoming = step  # type: ignore[misc]
        give, take = (runs_of_parts(op.chunk, op.count, world_size) for op in (outgoing, incoming))
        yield (*(send(outgoing.peer, *run) for run in give), *(recv(incoming.peer, *run) for run in take))
    if spare < world_size:
        after = world_size - spare - 1
        yield send(spare, 0, spare), *([send(spare, spare + 1, after)] if after else [])


@algorithm("reduce_scatter", name="recursive_halving")
def recursive_halving_reduce_scatter(rank: int, world_size: int) -> Program:
    """Rank r holds part r of the sum. log2 p steps; every rank sends (p - 1) / p n bytes, the least possible.

    Where p is no power of two there are two more steps, the first of n bytes.
    """
    core = core_of(world_size)
    if rank >= core:
        yield send(rank - core, 0, world_size)
        yield recv(rank - core, rank)
        return
    spare = rank + core
    if spare < world_size:
        yield recv_reduce(spare, 0, world_size)
    for step in halve(rank, core):
        outgoing, incoming = step  # type: ignore[misc]
        give, take = (runs_of_parts(op.chunk, op.count, world_size) for op in (outgoing, incoming))
        yield (*(send(outgoing.peer, *run) for run in give), *(recv_reduce(incoming.peer, *run) for run in take))
    if spare < world_size:
        yield send(spare, spare)
