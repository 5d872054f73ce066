"""Checks of lesson 2: deadlocks."""

from types import ModuleType

import torch
import torch.distributed as dist

from course.checks.exercise import (
    ALPHA,
    BETA,
    BLOCKING,
    POINT_TO_POINT,
    Exercise,
    Predicted,
    Shown,
    WrongAnswerError,
    expect_equal,
    measuring,
)

ELEMENTS = 1 << 18
TYPES = torch.float32, torch.int64, torch.bfloat16


@Exercise(
    "torch.distributed.send: when it returns; the cycle that `ringlab learn 2 --show` prints", (2, 4), calls=BLOCKING
)
def exchange(lesson: ModuleType) -> None:
    rank, world_size = dist.get_rank(), dist.get_world_size()
    for dtype in TYPES:
        for apart in {1, world_size // 2}:  # a neighbor; with four ranks, also a peer with the same parity
            peer = rank ^ apart
            mine, theirs = torch.full((8,), rank, dtype=dtype), torch.full((8,), 99, dtype=dtype)
            lesson.exchange(mine, theirs, peer)
            expect_equal(theirs, torch.full((8,), peer, dtype=dtype), f"rank {rank}: theirs")
            expect_equal(mine, torch.full((8,), rank, dtype=dtype), f"rank {rank}: mine, which must not change,")


@Exercise(
    "torch.distributed.isend, irecv and batch_isend_irecv, and what their wait() guarantees",
    (2, 3, 5),
    calls=POINT_TO_POINT,
    receivers=lambda rank, p: {(rank + 1) % p},
    most_seconds=lambda p: 1.01 * (ALPHA + 4 * ELEMENTS * BETA),
    hint="all ranks can send at the same time: post the send and the receive before you wait for either",
)
def shift(lesson: ModuleType) -> None:
    rank, left = dist.get_rank(), (dist.get_rank() - 1) % dist.get_world_size()
    for elements, dtype in zip((ELEMENTS, 3, 1), TYPES, strict=True):
        mine = torch.full((elements,), rank, dtype=dtype)
        received = torch.full((elements,), 99, dtype=dtype)
        with measuring(lesson):
            lesson.shift(mine, received)
        wanted = torch.full((elements,), left, dtype=dtype)
        expect_equal(received, wanted, f"rank {rank}: received, from rank {left},")
        expect_equal(mine, torch.full((elements,), rank, dtype=dtype), f"rank {rank}: mine, which must not change,")


@Exercise("the cycle of `ringlab learn 2 --show`: go from a rank to the one that it waits for, until a rank repeats")
def find_cycle(lesson: ModuleType) -> None:
    cases: list[tuple[dict[int, int], list[int]]] = [
        ({0: 1, 1: 0}, [0, 1]),
        ({0: 1, 1: 2, 2: 3, 3: 1}, [1, 2, 3]),
        ({5: 2, 2: 7, 7: 5, 1: 5}, [2, 7, 5]),
        ({4: 3, 3: 9, 9: 8, 8: 3, 0: 1}, [3, 9, 8]),
        ({7: 6, 6: 5, 5: 7}, [5, 7, 6]),
        ({0: 1, 1: 2}, []),
        ({}, []),
    ]
    for waits_for, wanted in cases:
        try:
            cycle = lesson.find_cycle(dict(waits_for))
        except Exception as error:
            error.add_note(f"in find_cycle({waits_for})")
            raise
        if cycle != wanted:
            raise WrongAnswerError(f"find_cycle({waits_for}) must be {wanted}, not {cycle!r}")


def predicted() -> dict[str, Predicted]:
    return {
        "ranks that end if all send first": Predicted(
            0, "Every rank waits in its send for a neighbor that is itself sending: a cycle, so none continues."
        ),
        "ranks that end if rank 0 receives first": Predicted(
            4, "Rank 0 takes rank 3's tensor, so rank 3 can receive from rank 2, and so on around the ring."
        ),
    }


SHOWN = Shown(4)
