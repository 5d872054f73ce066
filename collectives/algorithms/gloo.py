"""What gloo itself does for an all_reduce, as a rank program: beside ours it is predicted, and measured by one call."""

from collectives.algorithms.ring import all_reduce_around, two_a_rank
from collectives.declaration import GLOO, GloosOwn
from collectives.spec import find_spec
from collectives.step import Program, on_group


def gloo_all_reduce(rank: int, world_size: int) -> tuple[Program, ...]:
    """Every rank holds the sum. Two rings in the same direction, each on one half of every part, n / 2p bytes a step.

    ``torch.distributed.all_reduce`` over gloo takes gloo's default, a ring that has two segments of a part under way
    (``ring`` in gloo/allreduce.cc), from each rank to the one before it. Above 2 MiB a part gloo has more segments
    than two, of at most 1 MiB; here as there two are under way.
    """
    rings = (all_reduce_around(rank, world_size, direction=-1) for _ in range(2))
    return tuple(on_group(ring, range(world_size), first_chunk=segment, stride=2) for segment, ring in enumerate(rings))


ALL_REDUCE = GloosOwn(find_spec("all_reduce"), GLOO, gloo_all_reduce, two_a_rank)
