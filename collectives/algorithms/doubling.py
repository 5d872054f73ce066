"""Recursive doubling and halving: partners at distance 1, 2, 4, ..., whose rank numbers differ in one bit.

**Steps.** *Recursive doubling* (all_gather): in each step a rank exchanges all chunks that it has with its partner, so
that the number of chunks doubles. *Recursive halving* (reduce_scatter): in each step a rank sends the half of its
remaining chunks that its partner will keep, adds the other half, and continues with that half. *Halving and doubling*
(all_reduce, by Rabenseifner) runs both. For short messages, ``all_reduce/recursive_doubling`` exchanges whole buffers.

**Why it is correct.** After the exchanges at distances 1, 2, ..., d, the 2 d ranks whose numbers differ only in these
bits have combined their data. The last step combines all ranks. Recursive halving runs the distances in reverse order.

This holds if p is a power of two. Otherwise, the first 2^k ranks, with the largest possible k, are the *core*, and the
remaining ranks are *spare*: rank 2^k + i sends its data to rank i, waits, and receives the result from rank i.

**Source.** Thakur, Rabenseifner, Gropp (2005); Rabenseifner (2004). Spare ranks cost two steps of up to n bytes.

**When to choose it.** On networks without contention and with 2^k ranks: recursive doubling for short messages, halving
and doubling for long ones. Rings and thin trunks are unsuitable, because many partners are far apart.
"""

from collections.abc import Iterator

from collectives.declaration import algorithm
from collectives.step import Program, recv, recv_reduce, send


def core_of(world_size: int) -> int:
    """Return the largest power of two that is at most ``world_size``."""
    return 1 << (world_size.bit_length() - 1)


def halve(rank: int, core: int) -> Program:
    """Run a recursive-halving reduce_scatter on the first ``core`` ranks. ``core`` must be a power of two."""
    first, count = 0, core
    while count > 1:
        count //= 2
        keep = first + (rank & count)
        yield send(rank ^ count, keep ^ count, count), recv_reduce(rank ^ count, keep, count)
        first = keep


def double(rank: int, core: int) -> Program:
    """Run a recursive-doubling all_gather on the first ``core`` ranks. ``core`` must be a power of two."""
    first, count = rank, 1
    while count < core:
        yield send(rank ^ count, first, count), recv(rank ^ count, first ^ count, count)
        first, count = first & ~count, 2 * count


def exchange_all(rank: int, core: int) -> Program:
    """Run a recursive-doubling all_reduce of chunk 0 on the first ``core`` ranks. ``core`` must be a power of two."""
    distance = 1
    while distance < core:
        yield send(rank ^ distance, 0), recv_reduce(rank ^ distance, 0)
        distance *= 2


def with_spares(inner: Program, rank: int, world_size: int, chunks: int) -> Program:
    """Run ``inner`` on the core ranks, after they receive data from spare ranks. Then send results to spare ranks."""
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
    """Sum all buffers on all ranks in log2 p steps. Every rank sends n bytes in each step.

    This holds if p is a power of two. Otherwise, there are two more steps.
    """
    yield from with_spares(exchange_all(rank, core_of(world_size)), rank, world_size, chunks=1)


def halve_and_double(rank: int, core: int) -> Program:
    yield from halve(rank, core)
    yield from double(rank, core)


@algorithm("all_reduce", name="halving_doubling", chunks=core_of)
def halving_doubling_all_reduce(rank: int, world_size: int) -> Program:
    """Sum all buffers on all ranks in 2 log2 p steps. Every rank sends 2 (p - 1) n / p bytes, which is optimal.

    This holds if p is a power of two. Otherwise, there are two more steps of n bytes each.
    """
    core = core_of(world_size)
    yield from with_spares(halve_and_double(rank, core), rank, world_size, chunks=core)


def runs_of_chunks(first: int, count: int, world_size: int) -> Iterator[tuple[int, int]]:
    """Yield (first chunk, count) for the chunks of core ranks ``first`` to ``first + count - 1``.

    If some of these core ranks have spare ranks, also yield a pair for the spare ranks' chunks.
    """
    core = core_of(world_size)
    yield first, count
    spare = min(count, world_size - core - first)
    if spare > 0:
        yield core + first, spare


@algorithm("all_gather", name="recursive_doubling")
def recursive_doubling_all_gather(rank: int, world_size: int) -> Program:
    """Copy chunk r of rank r to all ranks in log2 p steps. Every rank sends (p - 1) n / p bytes, which is optimal.

    This holds if p is a power of two. Otherwise, there are floor(log2 p) + 2 steps, and core ranks with a spare rank
    send nearly 2 n bytes.
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
        sent, received = (runs_of_chunks(op.chunk, op.count, world_size) for op in (outgoing, incoming))
        yield (*(send(outgoing.peer, *run) for run in sent), *(recv(incoming.peer, *run) for run in received))
    if spare < world_size:
        after = world_size - spare - 1
        yield send(spare, 0, spare), *([send(spare, spare + 1, after)] if after else [])


@algorithm("reduce_scatter", name="recursive_halving")
def recursive_halving_reduce_scatter(rank: int, world_size: int) -> Program:
    """Sum chunk r on rank r in log2 p steps. Every rank sends (p - 1) n / p bytes, which is optimal.

    This holds if p is a power of two. Otherwise, there are floor(log2 p) + 2 steps, the first with messages of n bytes.
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
        sent, received = (runs_of_chunks(op.chunk, op.count, world_size) for op in (outgoing, incoming))
        yield (*(send(outgoing.peer, *run) for run in sent), *(recv_reduce(incoming.peer, *run) for run in received))
    if spare < world_size:
        yield send(spare, spare)
