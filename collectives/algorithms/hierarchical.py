"""Two dimensions: within a row first, then across the rows with a share of the data, then within the row again.

With nodes as rows this keeps most bytes on the fast links inside a node; each GPU reduces its own share across the
nodes, on a *rail* of GPUs with the same number. Mikami et al., "Massively distributed SGD: ImageNet/ResNet-50 training
in a flash" (2018), section 2.3, for the ring in each dimension; Thakur et al. (2005) for what may stand inside. The
torus runs both dimensions at once, each on half of the data: Jain and Sabharwal, "Optimal bucket algorithms for large
MPI collectives on torus interconnects", ICS 2010.
"""

from math import isqrt, lcm

from collectives.algorithms.ring import all_reduce_round, gather_round, reduce_round
from collectives.catalogue import Algorithm, algorithm, find_algorithm
from collectives.errors import InputError, Undefined
from collectives.step import Program, on_group


def divided(world_size: int, wanted: int | None, name: str) -> int:
    """``wanted``, or the divisor of ``world_size`` next to its root. Raises Undefined where it divides nothing."""
    if wanted is None:
        return next(width for width in range(isqrt(world_size), 0, -1) if world_size % width == 0)
    if wanted < 1 or world_size % wanted:
        raise Undefined(f"{name}={wanted} is for multiples of {wanted} ranks")
    return wanted


def inside(collective: str, name: str, world_size: int) -> Algorithm:
    """The algorithm that runs in one dimension. Raises InputError for one with scratch or several channels."""
    found = find_algorithm(name, collective)
    if found.scratch(world_size) or len(found.channels(0, world_size)) > 1:
        raise InputError(f"{found.full_name} cannot run inside: it needs one channel and no scratch")
    return found


def finest(world_size: int, gpus: int | None, node: str, rail: str) -> int:
    """Chunks such that those of all algorithms inside are whole numbers of them."""
    width = divided(world_size, gpus, "gpus")
    scatter, gather = inside("reduce_scatter", node, width), inside("all_gather", node, width)
    shares = [(found.chunks(width)) // width for found in (scatter, gather)]
    return width * lcm(*shares, inside("all_reduce", rail, world_size // width).chunks(world_size // width))


@algorithm("all_reduce", name="hierarchical", chunks=finest)
def hierarchical_all_reduce(
    rank: int, world_size: int, gpus: int | None = None, node: str = "ring", rail: str = "ring"
) -> Program:
    """Every rank holds the sum. With rings: 2 (g - 1) + 2 (p / g - 1) steps; it sends 2 (p - 1) / p n bytes, the least.

    ``gpus`` are the ranks of a node, one after the other; about the root of p unless said. ``node`` names the
    reduce_scatter and the all_gather within it, ``rail`` the all_reduce across the nodes.
    """
    width = divided(world_size, gpus, "gpus")
    total, nodes = finest(world_size, gpus, node, rail), world_size // width
    row, gpu = divmod(rank, width)
    peers, across = range(row * width, (row + 1) * width), range(gpu, world_size, width)
    scatter, gather = inside("reduce_scatter", node, width), inside("all_gather", node, width)
    reduce = inside("all_reduce", rail, nodes)
    share = total // width
    yield from on_group(scatter.steps(gpu, width), peers, count=total // scatter.chunks(width))
    yield from on_group(reduce.steps(row, nodes), across, share // reduce.chunks(nodes), first_chunk=gpu * share)
    yield from on_group(gather.steps(gpu, width), peers, count=total // gather.chunks(width))


def two_dimensions(rank: int, rows: range, columns: range, place: tuple[int, int], first: int) -> Program:
    """Every rank holds the sum of the chunks from ``first`` on: rings in its row, its column and its row again."""
    (across, down), size = place, len(rows) * len(columns)
    share = size // len(rows)
    yield from on_group(reduce_round(across, len(rows), 1), rows, share, first)
    yield from on_group(all_reduce_round(down, len(columns), 1), columns, 1, first + across * share)
    yield from on_group(gather_round(across, len(rows), 1), rows, share, first)


@algorithm("all_reduce", name="torus", chunks=lambda world_size: 2 * world_size)
def torus_all_reduce(rank: int, world_size: int, columns: int | None = None) -> tuple[Program, ...]:
    """Every rank holds the sum, each half by way of one dimension first. It sends 2 (p - 1) / p n bytes, the least.

    ``columns`` are the ranks of a row, one after the other; about the root of p unless said. With r rows of c:
    2 (c - 1) + 2 (r - 1) steps on each of two channels.
    """
    width = divided(world_size, columns, "columns")
    y, x = divmod(rank, width)
    row, column = range(y * width, (y + 1) * width), range(x, world_size, width)
    return (
        two_dimensions(rank, row, column, (x, y), first=0),
        two_dimensions(rank, column, row, (y, x), first=world_size),
    )
