"""Two dimensions: within a row first, then across the rows with a share of the data, then within the row again.

With nodes as rows this keeps most bytes on the fast links inside a node; each GPU reduces its own share across the
nodes, on a *rail* of GPUs with the same number. Mikami et al., "Massively distributed SGD: ImageNet/ResNet-50 training
in a flash" (2018), for the ring in each dimension; Thakur et al. (2005) for what may stand inside. The
torus runs two or three dimensions at once, in both directions, each on its share of the data: Jain and Sabharwal,
"Optimal bucket algorithms for large MPI collectives on torus interconnects", ICS 2010.
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
    """Return ``wanted``, or else the largest divisor up to the root of ``world_size``.

    Raises Undefined if ``wanted`` does not divide ``world_size``; ``name`` is the parameter's.
    """
    if wanted is None:
        return next(width for width in range(isqrt(world_size), 0, -1) if world_size % width == 0)
    if wanted < 1 or world_size % wanted:
        raise Undefined(f"{name}={wanted} is for multiples of {wanted} ranks")
    return wanted


class Dimensions(NamedTuple):
    """The three algorithms that run one after the other on a piece: within nodes, across nodes, and within nodes."""

    scatter: Inner
    reduce: Inner
    gather: Inner

    @property
    def chunks(self) -> int:
        """How many chunks the piece has, so that each chunk of the three algorithms is a whole number of them."""
        width = self.scatter.world_size
        return width * lcm(self.scatter.chunks // width, self.gather.chunks // width, self.reduce.chunks)


def find_pieces(world_size: int, gpus: int | None, node: str, rail: str, gather: str | None) -> list[Dimensions]:
    """Return the three algorithms of each piece of the buffer.

    There are as many pieces as each of the algorithms has channels, or a multiple of them.
    """
    width = choose_width(world_size, gpus, "gpus")
    inner = (
        inner_channels("reduce_scatter", node, width),
        inner_channels("all_reduce", rail, world_size // width),
        inner_channels("all_gather", gather or node, width),
    )
    return [Dimensions(*(one[k % len(one)] for one in inner)) for k in range(lcm(*map(len, inner)))]


def chunk_count(world_size: int, gpus: int | None, node: str, rail: str, gather: str | None) -> int:
    """Return into how many chunks the buffer is cut: equally many for each piece."""
    found = find_pieces(world_size, gpus, node, rail, gather)
    return len(found) * lcm(*(piece.chunks for piece in found))


def scratch_count(world_size: int, gpus: int | None, node: str, rail: str, gather: str | None) -> int:
    """Return the number of scratch chunks: as many buffers as the algorithm inside that needs most."""
    found = find_pieces(world_size, gpus, node, rail, gather)
    return chunk_count(world_size, gpus, node, rail, gather) * max(inner.buffers for piece in found for inner in piece)


@algorithm("all_reduce", name="hierarchical", chunks=chunk_count, scratch=scratch_count)
def hierarchical_all_reduce(
    rank: int,
    world_size: int,
    gpus: int | None = None,
    node: str = "ring",
    rail: str = "ring",
    gather: str | None = None,
) -> tuple[Program, ...]:
    """Every rank holds the sum. With rings: 2 (g - 1) + 2 (p / g - 1) steps; it sends 2 (p - 1) / p n bytes, the least.

    ``gpus`` are the ranks of a node, one after the other; about the root of p unless said. ``node`` names the
    reduce_scatter within it, ``rail`` the all_reduce across the nodes, and ``gather`` the all_gather within, where it
    is called otherwise than ``node``. It has as many channels as the algorithms inside, each for a piece of the buffer.
    """
    found, total = find_pieces(world_size, gpus, node, rail, gather), chunk_count(world_size, gpus, node, rail, gather)
    size = total // len(found)
    return tuple(one_piece(rank, world_size, piece, k * size, size, total) for k, piece in enumerate(found))


def one_piece(rank: int, world_size: int, piece: Dimensions, first: int, size: int, total: int) -> Program:
    """Leave the sum of ``size`` chunks from ``first`` on, of ``total``, on every rank."""
    scatter, reduce, gather = piece
    width, share = scatter.world_size, size // scatter.world_size
    row, gpu = divmod(rank, width)
    peers, across = Spaced(row * width, 1, width), Spaced(gpu, width, world_size // width)
    yield from scatter.run(gpu, peers, size // scatter.chunks, first, total)
    yield from reduce.run(row, across, share // reduce.chunks, first + gpu * share, total)
    yield from gather.run(gpu, peers, size // gather.chunks, first, total)


class Line(NamedTuple):
    """The ranks along one dimension of a torus, and the place of this rank among them."""

    place: int
    ranks: Spaced


def torus_shape(world_size: int, columns: int | None, rows: int | None) -> list[int]:
    """Return the sizes of the dimensions that have several ranks, rows first. Raise Undefined for other multiples.

    >>> torus_shape(24, 4, 3), torus_shape(24, None, None), torus_shape(7, None, None)
    ([4, 3, 2], [4, 6], [7])
    """
    width = choose_width(world_size, columns, "columns")
    planes = 1 if rows is None else world_size // (width * choose_width(world_size // width, rows, "rows"))
    return [size for size in (width, world_size // width // planes, planes) if size > 1]


def torus_chunks(world_size: int, columns: int | None, rows: int | None) -> int:
    """Return a chunk for each rank and channel."""
    return world_size * max(1, 2 * len(torus_shape(world_size, columns, rows)))


def by_lines(lines: Sequence[Line], direction: int, first: int) -> Program:
    """Leave the sums of the chunks from ``first`` on, one for each rank, on every rank: a ring in each dimension.

    ``direction`` is as in ``reduce_around``.
    """
    if not lines:
        return
    (place, ranks), *others = lines
    share = prod(len(line.ranks) for line in others)
    yield from on_group(reduce_around(place, len(ranks), direction), ranks, share, first)
    yield from by_lines(others, direction, first + place * share)
    yield from on_group(gather_around(place, len(ranks), direction), ranks, share, first)


@algorithm("all_reduce", name="torus", chunks=torus_chunks)
def torus_all_reduce(
    rank: int, world_size: int, columns: int | None = None, rows: int | None = None
) -> tuple[Program, ...]:
    """Every rank holds the sum. In r rows of c ranks 2 (r + c - 2) steps; it sends 2 (p - 1) / p n bytes, the least.

    ``columns`` are the ranks of a row, one after the other; about the root of p unless said. ``rows`` are the rows of
    a plane; all of them, in one plane, unless said. Each of d dimensions with several ranks has two channels, one a
    direction, which begin in it and go on in the others, each with n / 2d bytes: they use all links at once.
    """
    lines, apart = list[Line](), 1
    for size in torus_shape(world_size, columns, rows):
        place = rank // apart % size
        lines.append(Line(place, Spaced(rank - place * apart, apart, size)))
        apart *= size
    orders = [(lines[k:] + lines[:k], way) for k in range(len(lines)) for way in (1, -1)]
    return tuple(by_lines(order, way, number * world_size) for number, (order, way) in enumerate(orders or [([], 1)]))
