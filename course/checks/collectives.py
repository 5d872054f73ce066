"""Checks of lesson 3: broadcast, reduce and all_reduce by hand."""

from types import ModuleType

import torch
import torch.distributed as dist

from course.checks.exercise import ALPHA, BETA, Exercise, Shown, expect_close, expect_equal

ELEMENTS = 1000


def values(rank: int, elements: int = ELEMENTS) -> torch.Tensor:
    """Return whole numbers that no two ranks share, so that sums are exact in any order."""
    return torch.arange(elements, dtype=torch.float32) % 13 + 100 * rank


def total(elements: int = ELEMENTS) -> torch.Tensor:
    return torch.stack([values(rank, elements) for rank in range(dist.get_world_size())]).sum(0)


def broadcast(lesson: ModuleType) -> None:
    for src in range(dist.get_world_size()):
        tensor = values(dist.get_rank())
        lesson.broadcast(tensor, src)
        expect_equal(tensor, values(src), f"rank {dist.get_rank()}: tensor after broadcast from rank {src}")


def reduce(lesson: ModuleType) -> None:
    rank = dist.get_rank()
    for dst in range(dist.get_world_size()):
        tensor = values(rank)
        lesson.reduce(tensor, dst)
        if rank == dst:
            expect_equal(tensor, total(), f"rank {rank}: the sum after reduce to rank {dst}")
        else:
            expect_equal(tensor, values(rank), f"rank {rank}: tensor, which must stay in a reduce to rank {dst},")


def all_reduce(lesson: ModuleType) -> None:
    tensor = values(dist.get_rank())
    lesson.all_reduce(tensor)
    expect_equal(tensor, total(), f"rank {dist.get_rank()}: the sum")


def all_reduce_seconds(lesson: ModuleType) -> None:
    for p, nbytes in ((2, 1000), (8, 8 << 20)):
        wanted = 2 * (p - 1) * (ALPHA + nbytes * BETA)
        expect_close(
            lesson.all_reduce_seconds(p, nbytes, ALPHA, BETA), wanted, f"all_reduce_seconds({p}, {nbytes}, ..)"
        )


def one_by_one(p: int) -> float:
    return 1.01 * (p - 1) * (ALPHA + 4 * ELEMENTS * BETA)


EXERCISES = [
    Exercise("broadcast", broadcast, (2, 5), most_seconds=lambda p: p * one_by_one(p)),
    Exercise("reduce", reduce, (2, 5), most_seconds=lambda p: p * one_by_one(p)),
    Exercise("all_reduce", all_reduce, (1, 2, 5), most_seconds=lambda p: 2 * one_by_one(p)),
    Exercise("all_reduce_seconds", all_reduce_seconds),
]
PREDICTED = {"seconds of the all_reduce of 8 MiB on 8 ranks": 14 * (ALPHA + (8 << 20) * BETA)}
SHOWN = Shown(8, "all_reduce/naive", 1 << 20)
