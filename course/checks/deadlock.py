"""Checks of lesson 2: deadlocks."""

from types import ModuleType

import torch
import torch.distributed as dist

from course.checks.exercise import ALPHA, BETA, Exercise, Shown, WrongAnswerError, expect_equal

ELEMENTS = 1 << 18


def exchange(lesson: ModuleType) -> None:
    rank = dist.get_rank()
    for apart in (1, dist.get_world_size() // 2):  # a neighbour, and, of four ranks, one that is as even or odd
        mine, theirs = torch.full((8,), float(rank)), torch.full((8,), -1.0)
        lesson.exchange(mine, theirs, rank ^ apart)
        expect_equal(theirs, torch.full((8,), float(rank ^ apart)), f"rank {rank}: theirs")
        expect_equal(mine, torch.full((8,), float(rank)), f"rank {rank}: mine, which must stay,")


def shift(lesson: ModuleType) -> None:
    rank, left = dist.get_rank(), (dist.get_rank() - 1) % dist.get_world_size()
    mine, received = torch.full((ELEMENTS,), float(rank)), torch.full((ELEMENTS,), -1.0)
    lesson.shift(mine, received)
    expect_equal(received, torch.full((ELEMENTS,), float(left)), f"rank {rank}: received, of rank {left},")


def circle(lesson: ModuleType) -> None:
    cases: list[tuple[dict[int, int], list[int]]] = [
        ({0: 1, 1: 0}, [0, 1]),
        ({0: 1, 1: 2, 2: 3, 3: 1}, [1, 2, 3]),
        ({5: 2, 2: 7, 7: 5, 1: 5}, [2, 7, 5]),
        ({0: 1, 1: 2}, []),
        ({}, []),
    ]
    for waits_for, wanted in cases:
        try:
            found = lesson.circle(dict(waits_for))
        except Exception as error:
            error.add_note(f"in circle({waits_for})")
            raise
        if found != wanted:
            raise WrongAnswerError(f"circle({waits_for}) should be {wanted} and is {found!r}")


EXERCISES = [
    Exercise(
        "exchange",
        exchange,
        "torch.distributed.send: when it returns; the circle that `ringlab learn 2 --show` draws",
        (2, 4),
    ),
    Exercise(
        "shift",
        shift,
        "torch.distributed.isend, irecv and batch_isend_irecv, and what their wait() promises",
        (2, 3, 5),
        most_seconds=lambda p: 1.01 * (ALPHA + 4 * ELEMENTS * BETA),
        hint="all ranks can send at the same time: post the send and the receive before you wait for either",
    ),
    Exercise(
        "circle",
        circle,
        "the report of `ringlab learn 2 --show`: from a rank to the one it waits for, until one comes again",
    ),
]
PREDICTED = {"ranks that end if all send first": 0, "ranks that end if rank 0 receives first": 4}
SHOWN = Shown(4)
