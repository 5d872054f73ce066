"""Checks of lesson 4: the ring."""

from types import ModuleType

import torch

from course.checks.collectives import SMALL, check_sums
from course.checks.exercise import ALPHA, BETA, POINT_TO_POINT, Exercise, Predicted, Shown, expect_close

ELEMENTS = 100_003  # a prime, so no number of ranks divides it


@Exercise(
    "the first paragraph of lesson 4; `ringlab learn 4 --show`, which plays your run next to the ring",
    (1, 2, 3, 5, 8),
    calls=POINT_TO_POINT,
    receivers=lambda rank, p: {(rank + 1) % p},
    most_bytes=lambda p: 2 * (p - 1) * 4 * -(-ELEMENTS // p),
    least_bytes=lambda p: 2 * (p - 1) * 4 * (ELEMENTS // p),
    most_seconds=lambda p: 1.01 * seconds(p, 4 * (ELEMENTS + p)) + 1e-9,
    hint="a rank sends one p-th of the buffer in each of 2 (p - 1) steps, and receives at the same time",
)
def ring_all_reduce(lesson: ModuleType) -> None:
    check_sums(lesson, lesson.ring_all_reduce, ((ELEMENTS, torch.float32), *SMALL, (1200, torch.int32)))


def seconds(p: int, nbytes: int) -> float:
    return 2 * (p - 1) * (ALPHA + nbytes / p * BETA)


@Exercise("the first paragraph of lesson 4: how many steps, of how many bytes each")
def ring_seconds(lesson: ModuleType) -> None:
    for p, nbytes in ((2, 1000), (5, 1 << 16), (8, 8 << 20)):
        mistakes = {
            "2 p steps: there are 2 (p - 1)": 2 * p * (ALPHA + nbytes / p * BETA),
            "the whole buffer in every step: a step sends one chunk, n / p": 2 * (p - 1) * (ALPHA + nbytes * BETA),
            "alpha and beta swapped": 2 * (p - 1) * (BETA + nbytes / p * ALPHA),
            "p - 1 steps: all chunks go around a second time": seconds(p, nbytes) / 2,
            "alpha alone: the bytes take n / p * beta more": 2 * (p - 1) * ALPHA,
        }
        got = lesson.ring_seconds(p, nbytes, ALPHA, BETA)
        expect_close(got, seconds(p, nbytes), f"ring_seconds({p}, {nbytes}, ..)", mistakes=mistakes)


@Exercise("the docstring, which gives the other time; where two straight lines cross")
def ring_wins_from(lesson: ModuleType) -> None:
    for p in (3, 8, 64):
        wanted = ALPHA / BETA * p * (p - 2) / (p - 1) ** 2
        call_text = f"ring_wins_from({p}, 10 us, 10 Gbit/s), the bytes for which both take the same time,"
        expect_close(lesson.ring_wins_from(p, ALPHA, BETA), wanted, call_text)


def predicted() -> dict[str, Predicted]:
    return {
        "seconds of the ring, 8 MiB on 8 ranks": Predicted(
            seconds(8, 8 << 20), "Each of 14 steps sends a chunk of 1 MiB on all links at once: 14 * (10 us + 0.84 ms)."
        ),
        "bytes that a rank sends": Predicted(
            2 * 7 * (8 << 20) / 8, "A rank sends one chunk of 1 MiB in each of its 14 steps: 2 (p - 1) / p of 8 MiB."
        ),
    }


SHOWN = Shown(8, "all_reduce/ring", 8 << 20, call=lambda lesson, tensor: lesson.ring_all_reduce(tensor))
