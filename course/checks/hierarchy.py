"""Checks of lesson 7: hierarchical all_reduce over a thin trunk."""

from types import ModuleType

import torch.distributed as dist
from torch import Tensor

from course.checks.collectives import expect_sum, values
from course.checks.exercise import ALPHA, BETA, Exercise, Shown, WrongAnswerError

ELEMENTS = 1 << 16


def racks(world_size: int) -> list[list[int]]:
    return [list(range(0, world_size, 2)), list(range(1, world_size, 2))]


def make_groups(lesson: ModuleType) -> None:
    rank, world_size = dist.get_rank(), dist.get_world_size()
    found = lesson.make_groups(racks(world_size))
    if not isinstance(found, tuple) or len(found) != 2:
        raise WrongAnswerError(f"rank {rank}: make_groups should return two groups and returns {found!r}")
    inside, across = found
    wanted = racks(world_size)[rank % 2], [rank - rank % 2, rank - rank % 2 + 1]
    for group, ranks, name in ((inside, wanted[0], "inside its rack"), (across, wanted[1], "across the racks")):
        got = dist.get_process_group_ranks(group)
        if got != ranks:
            raise WrongAnswerError(f"rank {rank}: the group {name} should be of ranks {ranks} and is of {got}")


def hierarchical_all_reduce(lesson: ModuleType) -> None:
    inside, across = lesson.make_groups(racks(dist.get_world_size()))
    tensor = values(dist.get_rank(), ELEMENTS)
    lesson.hierarchical_all_reduce(tensor, inside, across)
    expect_sum(tensor, range(dist.get_world_size()), f"rank {dist.get_rank()}: the sum")


def seconds(p: int) -> float:
    """Rings inside the racks, then an exchange of all parts over the trunk, which they share."""
    hosts, nbytes = p // 2, 4 * ELEMENTS
    inside = 2 * (hosts - 1) * (ALPHA + nbytes / hosts * BETA)
    return inside + 2 * (2 * ALPHA + nbytes / 2 * BETA)


EXERCISES = [
    Exercise(
        "make_groups",
        make_groups,
        "torch.distributed.new_group: which ranks must call it, and in what order",
        (4, 8),
        racks=2,
    ),
    Exercise(
        "hierarchical_all_reduce",
        hierarchical_all_reduce,
        "the first paragraph of lesson 7: three stages; the argument group of collectives",
        (4, 8),
        racks=2,
        most_seconds=lambda p: 1.1 * seconds(p),
        hint="only the stage in the middle may cross the trunk, and each rank with its part alone",
    ),
]
PREDICTED: dict[str, float] = {}


def call(lesson: ModuleType, tensor: Tensor) -> None:
    lesson.hierarchical_all_reduce(tensor, *lesson.make_groups(racks(dist.get_world_size())))


SHOWN = Shown(8, "all_reduce/ring", 8 << 20, racks=2, call=call)
