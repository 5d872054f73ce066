"""Hierarchical and torus all_reduce: reduce along one dimension of the ranks, then along the next, and gather back.

**Steps.** *Hierarchical*: the ranks are nodes of g GPUs. Each node runs a reduce_scatter, so that each GPU has 1/g of
the buffer. GPUs with the same local number form a *rail* and run an all_reduce of this share across the nodes. Then
each node runs an all_gather. *Torus*: the ranks are a grid of two or three dimensions. Rings reduce_scatter along each
dimension in turn and all_gather in reverse order. Each dimension and direction has its own channel, which begins with
that dimension, and its own share of the buffer, so that all links are busy.

**Why it is correct.** After the first dimension, each rank has its share of its row's sum. Summing the shares of one
rail over the rows gives the sum over all ranks, and the gather copies it to the row.

**Cost** (symbols: ``collectives.algorithms``). With rings, g GPUs per node and p / g nodes: ``2 (g + p / g - 2) alpha +
(p - 1) / p n (2 beta + gamma)``. A torus of equal dimensions has the same latency and bytes, and divides the reduction
among its channels. See Mikami et al., "Massively distributed SGD: ImageNet/ResNet-50 training in a flash" (2018), for
rings in two dimensions, and Jain, Sabharwal, "Optimal bucket algorithms for large MPI collectives on torus
interconnects", ICS 2010.

**When to choose it.** Hierarchical: if links within a node are faster than links between nodes, since only 1/g of the
buffer crosses each rail. Torus: on networks that are grids or tori, such as those of TPU pods.
"""

from collections.abc import Sequence
from math import isqrt, lcm, prod
from typing import NamedTuple

from collectives.algorithms.nesting import Inner, inner_channels
from collectives.algorithms.ring import gather_around, reduce_around
from collectives.declaration import algorithm
from collectives.errors import Undefined
from collectives.step import Program, Spaced, on_group


def choose_width(world_size: int, wanted: int | None, name: str) -> int:
    """Return ``wanted``, or by default the largest divisor of ``world_size`` up to its square root.

    Raise Undefined with the name of the parameter if ``wanted`` does not divide ``world_size``.
    """
    if wanted is None:
        return next(width for width in range(isqrt(world_size), 0, -1) if world_size % width == 0)
    if wanted < 1 or world_size % wanted:
        raise Undefined(f"{name}={wanted} requires a multiple of {wanted} ranks, not {world_size}")
    return wanted


class Dimensions(NamedTuple):
    """The inner algorithms of one piece of the buffer, in the order in which they run."""

    scatter: Inner
    reduce: Inner
    gather: Inner

    @property
    def chunks(self) -> int:
        """The number of chunks of the piece. It is a multiple of the number of chunks of each inner algorithm."""
        width = self.scatter.world_size
        return width * lcm(self.scatter.chunks // width, self.gather.chunks // width, self.reduce.chunks)


def find_pieces(world_size: int, gpus: int | None, node: str, rail: str, gather: str | None) -> list[Dimensions]:
    """Return the three inner algorithms of each piece of the buffer.

    The number of pieces is the least common multiple of the inner algorithms' channels.
    """
    width = choose_width(world_size, gpus, "gpus")
    inner = (
        inner_channels("reduce_scatter", node, width),
        inner_channels("all_reduce", rail, world_size // width),
        inner_channels("all_gather", gather or node, width),
    )
    return [Dimensions(*(pieces[k % len(pieces)] for pieces in inner)) for k in range(lcm(*map(len, inner)))]


def chunk_count(world_size: int, gpus: int | None, node: str, rail: str, gather: str | None) -> int:
    """Return the number of chunks of the buffer. All pieces have the same number of chunks."""
    pieces = find_pieces(world_size, gpus, node, rail, gather)
    return len(pieces) * lcm(*(piece.chunks for piece in pieces))


def scratch_count(world_size: int, gpus: int | None, node: str, rail: str, gather: str | None) -> int:
    """Return the number of scratch chunks: the most that an inner algorithm needs, rounded up to whole buffers."""
    pieces = find_pieces(world_size, gpus, node, rail, gather)
    return chunk_count(world_size, gpus, node, rail, gather) * max(inner.buffers for piece in pieces for inner in piece)


@algorithm("all_reduce", name="hierarchical", chunks=chunk_count, scratch=scratch_count)
def hierarchical_all_reduce(
    rank: int,
    world_size: int,
    gpus: int | None = None,
    node: str = "ring",
    rail: str = "ring",
    gather: str | None = None,
) -> tuple[Program, ...]:
    """Sum all buffers on all ranks. With rings, this takes 2 (g - 1) + 2 (p / g - 1) steps for g GPUs per node.

    All ranks send 2 (p - 1) / p n bytes. ``gpus`` is g, the number of consecutive ranks of a node; default: the largest
    divisor of p up to its square root. ``node`` names the reduce_scatter within a node, ``rail`` the all_reduce across
    nodes, and ``gather`` the all_gather within a node; default: the name in ``node``. Each channel runs one piece of
    the buffer through one channel of each inner algorithm.
    """
    pieces, total = find_pieces(world_size, gpus, node, rail, gather), chunk_count(world_size, gpus, node, rail, gather)
    size = total // len(pieces)
    return tuple(one_piece(rank, world_size, piece, k * size, size, total) for k, piece in enumerate(pieces))


def one_piece(rank: int, world_size: int, piece: Dimensions, first: int, size: int, total: int) -> Program:
    """Sum one piece of the buffer on all ranks: ``size`` of the ``total`` chunks, starting at chunk ``first``."""
    scatter, reduce, gather = piece
    width, share = scatter.world_size, size // scatter.world_size
    row, gpu = divmod(rank, width)
    peers, across = Spaced(row * width, 1, width), Spaced(gpu, width, world_size // width)
    yield from scatter.run(gpu, peers, size // scatter.chunks, first, total)
    yield from reduce.run(row, across, share // reduce.chunks, first + gpu * share, total)
    yield from gather.run(gpu, peers, size // gather.chunks, first, total)


class Line(NamedTuple):
    """One line of a torus: the ranks along one dimension, and this rank's position among them."""

    position: int
    ranks: Spaced


def torus_shape(world_size: int, columns: int | None, rows: int | None) -> list[int]:
    """Return the numbers of columns, rows and planes that exceed one. Raise Undefined if they do not divide the ranks.

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
    """Run a torus all_reduce on ``world_size`` chunks, starting at chunk ``first``.

    It reduce-scatters along each dimension, then all-gathers in reverse order. ``direction`` is 1 if partial sums move
    to the next rank of a line, and -1 if they move to the previous one.
    """
    if not lines:
        return
    (position, ranks), *others = lines
    share = prod(len(line.ranks) for line in others)
    yield from on_group(reduce_around(position, len(ranks), direction), ranks, share, first)
    yield from by_lines(others, direction, first + position * share)
    yield from on_group(gather_around(position, len(ranks), direction), ranks, share, first)


@algorithm("all_reduce", name="torus", chunks=torus_chunks)
def torus_all_reduce(
    rank: int, world_size: int, columns: int | None = None, rows: int | None = None
) -> tuple[Program, ...]:
    """Sum all buffers on all ranks in 2 (r + c - 2) steps, for r rows of c ranks. All send 2 (p - 1) / p n bytes.

    ``columns`` is the number of consecutive ranks of a row; default: the largest divisor of p up to its square root.
    ``rows`` is the number of rows of a plane; default: all rows. Each of d dimensions with several ranks has two
    channels, one per direction, with n / 2d bytes each. A channel starts with its own dimension and then runs the
    other dimensions.
    """
    lines, stride = list[Line](), 1
    for size in torus_shape(world_size, columns, rows):
        position = rank // stride % size
        lines.append(Line(position, Spaced(rank - position * stride, stride, size)))
        stride *= size
    orders = [(lines[k:] + lines[:k], way) for k in range(len(lines)) for way in (1, -1)]
    return tuple(by_lines(order, way, number * world_size) for number, (order, way) in enumerate(orders or [([], 1)]))
