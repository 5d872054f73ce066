"""Checks of lesson 4: the ring."""

from types import ModuleType

import torch.distributed as dist

from course.checks.collectives import expect_sum, values
from course.checks.exercise import ALPHA, BETA, Exercise, Shown, expect_close

ELEMENTS = 100_003  # which no number of ranks divides


def ring_all_reduce(lesson: ModuleType) -> None:
    tensor = values(dist.get_rank(), ELEMENTS)
    lesson.ring_all_reduce(tensor)
    expect_sum(tensor, range(dist.get_world_size()), f"rank {dist.get_rank()}: the sum")


def seconds(p: int, nbytes: int) -> float:
    return 2 * (p - 1) * (ALPHA + nbytes / p * BETA)


def ring_seconds(lesson: ModuleType) -> None:
    for p, nbytes in ((2, 1000), (8, 8 << 20)):
        mistakes = {
            "2 p steps: there are 2 (p - 1)": 2 * p * (ALPHA + nbytes / p * BETA),
            "the whole buffer in every step: it is a chunk, n / p": 2 * (p - 1) * (ALPHA + nbytes * BETA),
            "alpha and beta swapped": 2 * (p - 1) * (BETA + nbytes / p * ALPHA),
            "p - 1 steps: all chunks go round once more": seconds(p, nbytes) / 2,
            "alpha alone: the bytes take n / p * beta more": 2 * (p - 1) * ALPHA,
        }
        got = lesson.ring_seconds(p, nbytes, ALPHA, BETA)
        expect_close(got, seconds(p, nbytes), f"ring_seconds({p}, {nbytes}, ..)", mistakes=mistakes)


def ring_wins_from(lesson: ModuleType) -> None:
    for p in (3, 8, 64):
        wanted = ALPHA / BETA * p * (p - 2) / (p - 1) ** 2
        what = f"ring_wins_from({p}, 10 us, 10 Gbit/s), in bytes, where both take the same time,"
        expect_close(lesson.ring_wins_from(p, ALPHA, BETA), wanted, what)


EXERCISES = [
    Exercise(
        "ring_all_reduce",
        ring_all_reduce,
        "the first paragraph of lesson 4, and the picture: `ringlab learn 4 --show` plays yours beside the ring",
        (1, 2, 4, 8),
        most_bytes=lambda p: 2 * (p - 1) * 4 * -(-ELEMENTS // p),
        most_seconds=lambda p: 1.01 * seconds(p, 4 * (ELEMENTS + p)) + 1e-9,
        hint="a rank sends one p-th of the buffer in each of 2 (p - 1) steps, and receives at the same time",
    ),
    Exercise(
        "ring_seconds",
        ring_seconds,
        "the first paragraph of lesson 4: how many steps, of how many bytes each",
    ),
    Exercise(
        "ring_wins_from",
        ring_wins_from,
        "the docstring, which has the other time; where two straight lines cross",
    ),
]
PREDICTED = {
    "seconds of the ring, 8 MiB on 8 ranks": seconds(8, 8 << 20),
    "bytes that a rank sends": 2 * 7 * (8 << 20) / 8,
}
SHOWN = Shown(8, "all_reduce/ring", 8 << 20, call=lambda lesson, tensor: lesson.ring_all_reduce(tensor))
