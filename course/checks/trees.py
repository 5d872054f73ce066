"""Checks of lesson 5: trees, halving and doubling."""

import math
from types import ModuleType

import torch.distributed as dist

from course.checks.collectives import expect_sum, values
from course.checks.exercise import ALPHA, BETA, Exercise, Shown, expect_close

ELEMENTS = 1 << 14


def tree_broadcast(lesson: ModuleType) -> None:
    tensor = values(dist.get_rank(), ELEMENTS)
    lesson.tree_broadcast(tensor)
    expect_sum(tensor, [0], f"rank {dist.get_rank()}: the tensor")


def halving_doubling_all_reduce(lesson: ModuleType) -> None:
    tensor = values(dist.get_rank(), ELEMENTS)
    lesson.halving_doubling_all_reduce(tensor)
    expect_sum(tensor, range(dist.get_world_size()), f"rank {dist.get_rank()}: the sum")


def tree_seconds(lesson: ModuleType) -> None:
    for p, nbytes in ((2, 1000), (64, 4000)):
        wanted = 2 * math.log2(p) * (ALPHA + nbytes * BETA)
        mistakes = {
            "one way: it goes up and down": wanted / 2,
            "the natural logarithm: ranks double, so log2": wanted * math.log(2),
            "all bytes sent once: every round sends all of them": 2 * (math.log2(p) * ALPHA + nbytes * BETA),
        }
        got = lesson.tree_seconds(p, nbytes, ALPHA, BETA)
        expect_close(got, wanted, f"tree_seconds({p}, {nbytes}, ..)", mistakes=mistakes)


def crossing(p: int) -> float:
    depth = math.log2(p)
    return ALPHA / BETA * p * (p - 1 - depth) / (p * depth - (p - 1))


def ring_wins_from(lesson: ModuleType) -> None:
    for p in (4, 64):
        what = f"ring_wins_from({p}, 10 us, 10 Gbit/s), in bytes, where both take the same time,"
        expect_close(lesson.ring_wins_from(p, ALPHA, BETA), crossing(p), what)


def halving_seconds(p: int) -> float:
    return 2 * math.log2(p) * ALPHA + 2 * (p - 1) / p * 4 * ELEMENTS * BETA


EXERCISES = [
    Exercise(
        "tree_broadcast",
        tree_broadcast,
        "the first paragraph of lesson 5, and `ringlab learn 5 --show`: who has the tensor after each round",
        (1, 2, 5, 8),
        most_seconds=lambda p: 1.01 * math.ceil(math.log2(p)) * (ALPHA + 4 * ELEMENTS * BETA) + 1e-9,
        hint="in every round each rank that has the tensor sends it to one that has not, so that their number doubles",
    ),
    Exercise(
        "halving_doubling_all_reduce",
        halving_doubling_all_reduce,
        "`ringlab learn 5 --show` plays it beside yours: whose half goes to whom in each step",
        (2, 4, 8),
        most_bytes=lambda p: 2 * (p - 1) * 4 * ELEMENTS // p,
        most_seconds=lambda p: 1.01 * halving_seconds(p),
        hint="the first exchange is of half of the buffer, the next of a quarter, and both directions go on at once",
    ),
    Exercise(
        "tree_seconds",
        tree_seconds,
        "lesson 1: alpha + n * beta; how many rounds double one to all ranks",
    ),
    Exercise(
        "ring_wins_from",
        ring_wins_from,
        "lesson 4's function of this name; where two straight lines cross",
    ),
]
PREDICTED = {
    "seconds by the ring": 2 * 63 * (ALPHA + 4 / 64 * BETA),
    "seconds by the tree": 2 * 6 * (ALPHA + 4 * BETA),
    "bytes from which the ring is better": crossing(64),
}
SHOWN = Shown(
    8,
    "all_reduce/halving_doubling",
    16 << 10,
    call=lambda lesson, tensor: lesson.halving_doubling_all_reduce(tensor),
)
