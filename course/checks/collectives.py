"""Checks of lesson 3: broadcast, reduce and all_reduce by hand."""

from collections.abc import Iterable
from types import ModuleType

import torch
import torch.distributed as dist

from course.checks.exercise import ALPHA, BETA, Exercise, Shown, WrongAnswerError, expect_close
from course.checks.values import COUNTS, OWN, PLACES, counts_in

ELEMENTS = 1000


def values(rank: int, elements: int = ELEMENTS) -> torch.Tensor:
    """Return whole numbers of a rank, as ``value_at`` has them; sums are exact in any order."""
    return torch.arange(elements, dtype=torch.float32) % PLACES + OWN * COUNTS**rank


def expect_sum(got: torch.Tensor, ranks: Iterable[int], what: str) -> None:
    """Raise WrongAnswerError unless a tensor is the sum of some ranks' values; say whose are in it instead."""
    ranks = list(ranks)
    wanted = torch.stack([values(rank, len(got)) for rank in ranks]).sum(0)
    differs = got != wanted
    if differs.any():
        place = int(differs.nonzero()[0])
        share = f"{int(differs.sum())} of {len(got)} elements differ"
        raise WrongAnswerError(
            f"{what} should hold at [{place}] {whose(dict.fromkeys(ranks, 1))}, and holds "
            f"{contents(float(got[place]), place)} ({share})",
            got,
            [place],
        )


def contents(value: float, place: int) -> str:
    """Return in words of whose values an element is the sum.

    >>> contents(float(2 * values(0)[3] + values(2)[3]), 3), contents(7.5, 3), contents(float(values(1)[2]), 3)
    ("rank 0's 2 times and rank 2's", '7.5', "rank 1's, of another place")
    """
    counts, rest = counts_in(value), value % OWN
    if not counts or rest != int(rest):
        return f"{value:g}"
    is_of_place = rest == place % PLACES * sum(counts.values())
    return whose(counts) + ("" if is_of_place else ", of another place")


def whose(counts: dict[int, int]) -> str:
    each = [f"rank {rank}'s" + (f" {count} times" if count > 1 else "") for rank, count in counts.items()]
    return " and ".join(filter(None, [", ".join(each[:-1]), each[-1]]))


def broadcast(lesson: ModuleType) -> None:
    for src in range(dist.get_world_size()):
        tensor = values(dist.get_rank())
        lesson.broadcast(tensor, src)
        expect_sum(tensor, [src], f"rank {dist.get_rank()}: tensor after broadcast from rank {src}")


def reduce(lesson: ModuleType) -> None:
    rank = dist.get_rank()
    for dst in range(dist.get_world_size()):
        tensor = values(rank)
        lesson.reduce(tensor, dst)
        if rank == dst:
            expect_sum(tensor, range(dist.get_world_size()), f"rank {rank}: the sum after reduce to rank {dst}")
        else:
            expect_sum(tensor, [rank], f"rank {rank}: tensor, which must stay in a reduce to rank {dst},")


def all_reduce(lesson: ModuleType) -> None:
    tensor = values(dist.get_rank())
    lesson.all_reduce(tensor)
    expect_sum(tensor, range(dist.get_world_size()), f"rank {dist.get_rank()}: the sum")


def all_reduce_seconds(lesson: ModuleType) -> None:
    for p, nbytes in ((2, 1000), (8, 8 << 20)):
        wanted = 2 * (p - 1) * (ALPHA + nbytes * BETA)
        mistakes = {
            "p messages each way: rank 0 sends itself nothing": 2 * p * (ALPHA + nbytes * BETA),
            "one way: the sum goes back as well": wanted / 2,
            "alpha once each way: every message pays it": 2 * (ALPHA + (p - 1) * nbytes * BETA),
        }
        got = lesson.all_reduce_seconds(p, nbytes, ALPHA, BETA)
        expect_close(got, wanted, f"all_reduce_seconds({p}, {nbytes}, ..)", mistakes=mistakes)


def one_by_one(p: int) -> float:
    return 1.01 * (p - 1) * (ALPHA + 4 * ELEMENTS * BETA)


HINT = "each rank but one needs one message each way"
EXERCISES = [
    Exercise(
        "broadcast",
        broadcast,
        "torch.distributed.broadcast: what each rank holds before and after; the question above 'Your turn'",
        (2, 5),
        most_seconds=lambda p: p * one_by_one(p),
        hint=HINT,
    ),
    Exercise(
        "reduce",
        reduce,
        "torch.distributed.reduce: what root holds afterwards, and what the others may",
        (2, 5),
        most_seconds=lambda p: p * one_by_one(p),
        hint=HINT,
    ),
    Exercise(
        "all_reduce",
        all_reduce,
        "torch.distributed.all_reduce; your own two functions before it",
        (1, 2, 5),
        most_seconds=lambda p: 2 * one_by_one(p),
        hint=HINT,
    ),
    Exercise(
        "all_reduce_seconds",
        all_reduce_seconds,
        "lesson 1: alpha + n * beta; which messages wait for each other, by `ringlab learn 3 --show`",
    ),
]
PREDICTED = {"seconds of the all_reduce of 8 MiB on 8 ranks": 14 * (ALPHA + (8 << 20) * BETA)}
SHOWN = Shown(8, "all_reduce/naive", 8 << 20, call=lambda lesson, tensor: lesson.all_reduce(tensor))
