"""Checks of lesson 7: hierarchical all_reduce over a thin trunk."""

from types import ModuleType

import torch
import torch.distributed as dist

import simcomm
from course.checks.collectives import check_sums
from course.checks.exercise import ALPHA, BETA, Exercise, Predicted, Shown, WrongAnswerError
from simcomm.cluster.placement import place_round_robin

ELEMENTS = 1 << 16
NBYTES = 8 << 20  # as in the lesson's question


def racks(world_size: int) -> list[list[int]]:
    return [list(range(0, world_size, 2)), list(range(1, world_size, 2))]


def layouts(world_size: int) -> list[list[list[int]]]:
    """Return three layouts: the lesson's racks, two racks of neighboring ranks, and racks of two ranks."""
    half = world_size // 2
    return [
        racks(world_size),
        [list(range(half)), list(range(half, world_size))],
        [[first, world_size - 1 - first] for first in range(half)],
    ]


@Exercise("torch.distributed.new_group: which ranks must call it, and in what order", (4, 6, 8), racks=2)
def make_groups(lesson: ModuleType) -> None:
    rank = dist.get_rank()
    for layout in layouts(dist.get_world_size()):
        groups = lesson.make_groups([list(ranks) for ranks in layout])
        if not isinstance(groups, (tuple, list)) or len(groups) != 2:
            raise WrongAnswerError(f"rank {rank}: make_groups must return two groups, not {groups!r}")
        inside = next(ranks for ranks in layout if rank in ranks)
        across = [ranks[inside.index(rank)] for ranks in layout]
        for group, ranks, name in zip(groups, (inside, across), ("inside its rack", "across the racks"), strict=True):
            if not isinstance(group, dist.ProcessGroup):
                raise WrongAnswerError(
                    f"rank {rank}: make_groups must return this rank's process group {name}, not {group!r}"
                )
            got = dist.get_process_group_ranks(group)
            if sorted(got) != sorted(ranks):
                raise WrongAnswerError(
                    f"rank {rank}: the group {name} must have the ranks {ranks}, not {got} (racks {layout})"
                )


@Exercise(
    "the three stages in 'Your turn' of lesson 7; the argument group of collectives",
    (4, 6, 8),
    racks=2,
    most_seconds=lambda p: 1.1 * seconds(p, 4 * (ELEMENTS // 12 * p)),
    hint="only the stage in the middle may cross the trunk, and each rank sends only its part there",
)
def hierarchical_all_reduce(lesson: ModuleType) -> None:
    p = dist.get_world_size()
    inside, across = lesson.make_groups(racks(p))
    cases = (ELEMENTS // 12 * p, torch.float32), (p // 2, torch.int64), (3 * p // 2, torch.float64)
    check_sums(lesson, lambda tensor: lesson.hierarchical_all_reduce(tensor, inside, across), cases)


def seconds(p: int, nbytes: float) -> float:
    """Return the predicted seconds of reduce_scatter and all_gather in the racks, and all_reduce over the trunk."""
    hosts = p // 2
    inside = 2 * (hosts - 1) * (ALPHA + nbytes / hosts * BETA)
    return inside + 2 * (2 * ALPHA + nbytes / 2 * BETA)


def predicted() -> dict[str, Predicted]:
    cluster = place_round_robin(simcomm.two_level_tree(2, 4, "10 Gbit/s", "5 us", oversubscription=4))
    ring = simcomm.run("all_reduce/ring", cluster, nbytes=NBYTES)
    return {
        "seconds of the ring": Predicted(
            ring.elapsed,
            "Every rank's right neighbor is in the other rack, so four chunks share the trunk in each step.",
        ),
        "seconds of the three stages": Predicted(
            seconds(8, NBYTES), "Half of the buffer crosses the trunk, twice; the rest of the time is inside the racks."
        ),
    }


def call(lesson: ModuleType, tensor: torch.Tensor) -> None:
    lesson.hierarchical_all_reduce(tensor, *lesson.make_groups(racks(dist.get_world_size())))


SHOWN = Shown(8, "all_reduce/ring", NBYTES, racks=2, call=call)
