"""Hierarchical and torus all_reduce: reduce along one dimension of the ranks, then along the next, and gather back.

**Steps.** *Hierarchical*: each node has g GPUs, with one rank per GPU. Each node runs a reduce_scatter, so that each
GPU has 1/g of the buffer. GPUs with the same local rank form a *rail* and run an all_reduce of this shard across the
nodes. Then each node runs an all_gather. *Torus*: the ranks are a grid of two or three dimensions. Rings run a
reduce_scatter along each dimension in turn, and then an all_gather along each dimension in reverse order. Each
direction of each dimension has its own channel, which begins with that dimension and has its own part of the buffer, so
that all links are busy.

**Why it is correct.** After the first dimension, each rank has its shard of the sum over its row. Summing these shards
along a rail gives the shard of the sum over all ranks, and the all_gather copies it to the row.

**Source.** Mikami et al. (2018) for rings in two dimensions; Jain, Sabharwal (2010) for tori.

**When to choose it.** Hierarchical: if links within a node are faster than links between nodes, since only 1/g of the
buffer crosses each rail. Torus: on networks that are grids or tori, such as those of TPU pods.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import isqrt, lcm, prod
from typing import NamedTuple

from collectives.algorithms.ring import gather_around, reduce_around
from collectives.catalogue import find_algorithm
from collectives.declaration import Algorithm, algorithm
from collectives.errors import InputError, Undefined
from collectives.step import Program, Spaced, on_group


def choose_width(world_size: int, wanted: int | None, name: str) -> int:
    """Return ``wanted`` if it is set, or the largest divisor of ``world_size`` up to its square root if it is None.

    Raise Undefined, with the parameter's ``name``, if ``wanted`` does not divide ``world_size``.
    """
    if wanted is None:
        return next(width for width in range(isqrt(world_size), 0, -1) if world_size % width == 0)
    if wanted < 1 or world_size % wanted:
        raise Undefined(f"{name}={wanted} requires a multiple of {wanted} ranks, not {world_size}")
    return wanted


class Inner(NamedTuple):
    """An algorithm that runs on a subset of the ranks: on those of a node, or on those with the same local rank."""

    algorithm: Algorithm
    world_size: int
    chunks: int

    def run(self, rank: int, ranks: Sequence[int], first_chunk: int, size: int) -> Program:
        """Yield the steps of ``ranks[rank]``. The algorithm uses ``size`` chunks, starting with ``first_chunk``."""
        (program,) = self.algorithm.channels(rank, self.world_size)
        return on_group(program, ranks, size // self.chunks, first_chunk)


@lru_cache(maxsize=1024)
def find_inner(collective: str, name: str, world_size: int) -> Inner:
    """Return the algorithm to run on a group of ranks. Raise InputError if it has several channels or uses scratch."""
    found = find_algorithm(name, collective)
    if len(found.channels(0, world_size)) > 1 or found.scratch(world_size):
        raise InputError(
            f"{found.full_name} has several channels or scratch, so it cannot run inside another algorithm; use an "
            "algorithm with one channel, such as ring"
        )
    return Inner(found, world_size, found.chunks(world_size))


def inner_algorithms(
    world_size: int, gpus: int | None, node: str, rail: str, gather: str | None
) -> tuple[Inner, Inner, Inner]:
    """Return the reduce_scatter within a node, the all_reduce across the nodes, and the all_gather within a node."""
    width = choose_width(world_size, gpus, "gpus")
    scatter, gathering = find_inner("reduce_scatter", node, width), find_inner("all_gather", gather or node, width)
    return scatter, find_inner("all_reduce", rail, world_size // width), gathering


def chunk_count(world_size: int, gpus: int | None, node: str, rail: str, gather: str | None) -> int:
    """Return the smallest number of chunks that all three inner algorithms can use."""
    scatter, reduce, gathering = inner_algorithms(world_size, gpus, node, rail, gather)
    width = scatter.world_size
    return width * lcm(scatter.chunks // width, gathering.chunks // width, reduce.chunks)


@algorithm("all_reduce", name="hierarchical", chunks=chunk_count)
def hierarchical_all_reduce(
    rank: int,
    world_size: int,
    gpus: int | None = None,
    node: str = "ring",
    rail: str = "ring",
    gather: str | None = None,
) -> Program:
    """Sum all buffers on all ranks. With rings, this takes 2 (g - 1) + 2 (p / g - 1) steps for g GPUs per node.

    With rings, all ranks send 2 (p - 1) n / p bytes. ``gpus`` is g, the number of consecutive ranks of a node; default:
    the largest divisor of p up to its square root. ``node`` and ``gather`` name the reduce_scatter and the all_gather
    within a node, and ``rail`` the all_reduce across nodes. ``gather`` defaults to ``node``. Each must have a single
    channel and no scratch chunks.
    """
    scatter, reduce, gathering = inner_algorithms(world_size, gpus, node, rail, gather)
    total, width = chunk_count(world_size, gpus, node, rail, gather), scatter.world_size
    row, gpu = divmod(rank, width)
    peers, across = Spaced(row * width, 1, width), Spaced(gpu, width, world_size // width)
    yield from scatter.run(gpu, peers, 0, total)
    yield from reduce.run(row, across, gpu * (total // width), total // width)
    yield from gathering.run(gpu, peers, 0, total)


Line = tuple[int, Spaced]  # this rank's position among the ranks along one dimension of a torus, and these ranks


def torus_shape(world_size: int, columns: int | None, rows: int | None) -> list[int]:
    """Return the numbers of columns, rows and planes, without dimensions of size 1.

    Raise Undefined if ``columns`` does not divide the ranks, or ``rows`` does not divide the ranks of a column.

    >>> torus_shape(24, 4, 3), torus_shape(24, None, None), torus_shape(7, None, None)
    ([4, 3, 2], [4, 6], [7])
    """
    width = choose_width(world_size, columns, "columns")
    planes = 1 if rows is None else world_size // (width * choose_width(world_size // width, rows, "rows"))
    return [size for size in (width, world_size // width // planes, planes) if size > 1]


def torus_chunks(world_size: int, columns: int | None, rows: int | None) -> int:
    """Return the number of chunks: one per rank and channel."""
    return world_size * max(1, 2 * len(torus_shape(world_size, columns, rows)))


def by_lines(lines: Sequence[Line], direction: int, first: int) -> Program:
    """Run a torus all_reduce along ``lines``, one dimension of the torus after the other.

    ``lines`` has a tuple per dimension: this rank's position in its row along the dimension, and the ranks of this row.
    The all_reduce uses one chunk for each rank of the torus, starting with chunk ``first``. ``direction`` is 1 if
    partial sums move to the next rank of a row, and -1 if they move to the previous rank.
    """
    if not lines:
        return
    (position, ranks), *others = lines
    share = prod(len(line) for _, line in others)
    yield from on_group(reduce_around(position, len(ranks), direction), ranks, share, first)
    yield from by_lines(others, direction, first + position * share)
    yield from on_group(gather_around(position, len(ranks), direction), ranks, share, first)


@algorithm("all_reduce", name="torus", chunks=torus_chunks)
def torus_all_reduce(
    rank: int, world_size: int, columns: int | None = None, rows: int | None = None
) -> tuple[Program, ...]:
    """Sum all buffers on all ranks in 2 (r + c - 2) steps, for r rows of c ranks. All send 2 (p - 1) n / p bytes.

    ``columns`` is the number of consecutive ranks of a row; default: the largest divisor of p up to its square root.
    ``rows`` is the number of rows of a plane; default: all rows. Each dimension of more than one rank has two channels,
    one per direction. All channels have equal parts of the buffer. A channel first runs along its own dimension.
    """
    lines, stride = list[Line](), 1
    for size in torus_shape(world_size, columns, rows):
        position = rank // stride % size
        lines.append((position, Spaced(rank - position * stride, stride, size)))
        stride *= size
    orders = [(lines[k:] + lines[:k], way) for k in range(len(lines)) for way in (1, -1)]
    return tuple(by_lines(order, way, number * world_size) for number, (order, way) in enumerate(orders or [([], 1)]))
