"""Checks of lesson 5: trees, halving and doubling."""

import math
from types import ModuleType

import torch
import torch.distributed as dist

from course.checks.collectives import SMALL, check_sums, expect_sum, values
from course.checks.exercise import ALPHA, BETA, POINT_TO_POINT, Exercise, Predicted, Shown, expect_close, measuring

ELEMENTS = 1 << 14


@Exercise(
    "the first paragraph of lesson 5: which ranks have the tensor after each round",
    (1, 2, 3, 5, 8),
    calls=POINT_TO_POINT,
    least_bytes=lambda p: 4 * ELEMENTS * (p > 1),
    most_seconds=lambda p: 1.01 * math.ceil(math.log2(p)) * (ALPHA + 4 * ELEMENTS * BETA) + 1e-9,
    hint="in every round, each rank with the tensor sends it to a rank without it, so their number doubles",
)
def tree_broadcast(lesson: ModuleType) -> None:
    rank = dist.get_rank()
    for elements, dtype in ((ELEMENTS, torch.float32), *SMALL):
        tensor = values(rank, elements, dtype)
        with measuring(lesson, elements == ELEMENTS):
            lesson.tree_broadcast(tensor)
        expect_sum(tensor, [0], f"rank {rank}: the tensor")


@Exercise(
    "`ringlab learn 5 --show`, which plays the algorithm next to yours: which half goes where in each step",
    (2, 4, 8),
    calls=POINT_TO_POINT,
    receivers=lambda rank, p: {rank ^ 1 << step for step in range(p.bit_length() - 1)},
    most_bytes=lambda p: 2 * (p - 1) * 4 * ELEMENTS // p,
    least_bytes=lambda p: 2 * (p - 1) * 4 * ELEMENTS // p,
    most_seconds=lambda p: 1.01 * halving_seconds(p),
    hint="first exchange half of the buffer, then a quarter; both ranks of a pair send at the same time",
)
def halving_doubling_all_reduce(lesson: ModuleType) -> None:
    p = dist.get_world_size()
    cases = (ELEMENTS, torch.float32), (p, torch.int64), (3 * p, torch.float64)
    check_sums(lesson, lesson.halving_doubling_all_reduce, cases)


@Exercise("lesson 1: alpha + n * beta; how many rounds of doubling reach all ranks")
def tree_seconds(lesson: ModuleType) -> None:
    for p, nbytes in ((2, 1000), (64, 4000)):
        wanted = 2 * math.log2(p) * (ALPHA + nbytes * BETA)
        mistakes = {
            "one way: it goes up and down": wanted / 2,
            "the natural logarithm: each round doubles the ranks, so use log2": wanted * math.log(2),
            "all bytes sent once: every round sends all of them": 2 * (math.log2(p) * ALPHA + nbytes * BETA),
        }
        got = lesson.tree_seconds(p, nbytes, ALPHA, BETA)
        expect_close(got, wanted, f"tree_seconds({p}, {nbytes}, ..)", mistakes=mistakes)


def crossing(p: int) -> float:
    depth = math.log2(p)
    return ALPHA / BETA * p * (p - 1 - depth) / (p * depth - (p - 1))


@Exercise("the function of this name in lesson 4; where two straight lines cross")
def ring_wins_from(lesson: ModuleType) -> None:
    for p in (4, 64):
        call_text = f"ring_wins_from({p}, 10 us, 10 Gbit/s), the bytes for which both take the same time,"
        expect_close(lesson.ring_wins_from(p, ALPHA, BETA), crossing(p), call_text)


def halving_seconds(p: int) -> float:
    return 2 * math.log2(p) * ALPHA + 2 * (p - 1) / p * 4 * ELEMENTS * BETA


def predicted() -> dict[str, Predicted]:
    return {
        "seconds by the ring": Predicted(
            2 * 63 * (ALPHA + 4 / 64 * BETA), "The ring pays the latency in each of 2 * 63 steps; 4 bytes take no time."
        ),
        "seconds by the tree": Predicted(
            2 * 6 * (ALPHA + 4 * BETA), "The tree reaches 64 ranks in log2(64) = 6 rounds, up and down: 12 latencies."
        ),
        "bytes from which the ring is better": Predicted(
            crossing(64), "The tree sends all n bytes 12 times, the ring about twice: the bytes outweigh 114 latencies."
        ),
    }


SHOWN = Shown(
    8,
    "all_reduce/halving_doubling",
    16 << 10,
    call=lambda lesson, tensor: lesson.halving_doubling_all_reduce(tensor),
)
