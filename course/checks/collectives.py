"""Checks of lesson 3: broadcast, reduce and all_reduce by hand."""

from collections.abc import Callable, Iterable
from types import ModuleType

import torch
import torch.distributed as dist

from course.checks.exercise import (
    ALPHA,
    BETA,
    BLOCKING,
    COUNTS,
    OWN,
    PLACES,
    Exercise,
    Predicted,
    Shown,
    WrongAnswerError,
    counts_in,
    expect_close,
    measuring,
)

ELEMENTS = 1000
MEASURED = ELEMENTS, torch.float32
SMALL = (9, torch.int64), (3, torch.float64), (1, torch.float32)  # also fewer elements than ranks


def values(rank: int, elements: int = ELEMENTS, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return a rank's test data (see ``value_at``): integers whose sums are exact in any order."""
    return torch.arange(elements, dtype=dtype) % PLACES + OWN * COUNTS**rank


def expect_sum(got: torch.Tensor, ranks: Iterable[int], name: str, elements: int | None = None) -> None:
    """Raise WrongAnswerError unless ``got`` is the sum of the ranks' values. The message says what ``got`` contains."""
    ranks = list(ranks)
    if len(got) != (elements or len(got)):
        raise WrongAnswerError(f"{name} must have {elements} elements, not {len(got)}", got, [0])
    wanted = torch.stack([values(rank, len(got), got.dtype) for rank in ranks]).sum(0)
    differs = got != wanted
    if differs.any():
        place = int(differs.nonzero()[0])
        share = f"{int(differs.sum())} of {len(got)} elements differ"
        raise WrongAnswerError(
            f"{name} must hold {whose(dict.fromkeys(ranks, 1))} at [{place}], but holds "
            f"{contents(float(got[place]), place)} ({share})",
            got,
            [place],
        )


def contents(value: float, place: int) -> str:
    """Describe an element as a sum of the ranks' test values, or as a number. ``place`` is the element's index.

    >>> contents(float(2 * values(0)[3] + values(2)[3]), 3), contents(7.5, 3), contents(float(values(1)[2]), 3)
    ("rank 0's 2 times and rank 2's", '7.5', "rank 1's, from another place")
    """
    counts, rest = counts_in(value), value % OWN
    if not counts or rest != int(rest):
        return f"{value:g}"
    is_of_place = rest == place % PLACES * sum(counts.values())
    return whose(counts) + ("" if is_of_place else ", from another place")


def whose(counts: dict[int, int]) -> str:
    shares = [f"rank {rank}'s" + (f" {count} times" if count > 1 else "") for rank, count in counts.items()]
    return " and ".join(filter(None, [", ".join(shares[:-1]), shares[-1]]))


def one_by_one(p: int) -> float:
    return 1.01 * (p - 1) * (ALPHA + 4 * ELEMENTS * BETA) + 1e-9


def by_messages(read: str, most_seconds: Callable[[int], float] = one_by_one) -> Exercise:
    return Exercise(
        read,
        (1, 2, 3, 5),
        calls=BLOCKING,
        least_bytes=lambda p: 4 * ELEMENTS * (p > 1),
        most_seconds=most_seconds,
        hint="every rank except one needs one message in each direction",
    )


@by_messages("torch.distributed.broadcast: what each rank holds before and after; the question above 'Your turn'")
def broadcast(lesson: ModuleType) -> None:
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    for src, (elements, dtype) in zip((0, last, last // 2, last), (MEASURED, *SMALL), strict=True):
        tensor = values(rank, elements, dtype)
        with measuring(lesson, (elements, dtype) == MEASURED):
            lesson.broadcast(tensor, src)
        expect_sum(tensor, [src], f"rank {rank}: tensor after broadcast from rank {src}")


@by_messages("torch.distributed.reduce: what the root holds afterwards, and what the others may hold")
def reduce(lesson: ModuleType) -> None:
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    for dst, (elements, dtype) in zip((0, last, last // 2, last), (MEASURED, *SMALL), strict=True):
        tensor = values(rank, elements, dtype)
        with measuring(lesson, (elements, dtype) == MEASURED):
            lesson.reduce(tensor, dst)
        if rank == dst:
            expect_sum(tensor, range(last + 1), f"rank {rank}: the sum after reduce to rank {dst}")
        else:
            expect_sum(tensor, [rank], f"rank {rank}: tensor, which must not change in a reduce to rank {dst},")


@by_messages("torch.distributed.all_reduce; your own two functions above it", lambda p: 2 * one_by_one(p))
def all_reduce(lesson: ModuleType) -> None:
    check_sums(lesson, lesson.all_reduce, (MEASURED, *SMALL))


def check_sums(
    lesson: ModuleType, function: Callable[[torch.Tensor], object], cases: Iterable[tuple[int, torch.dtype]]
) -> None:
    """Check an all_reduce for each number of elements and dtype in ``cases``. Only the first call is measured."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    for number, (elements, dtype) in enumerate(cases):
        tensor = values(rank, elements, dtype)
        with measuring(lesson, number == 0):
            function(tensor)
        of = f" of {elements} element{'s' * (elements > 1)}, {str(dtype).removeprefix('torch.')}," * bool(number)
        expect_sum(tensor, range(world_size), f"rank {rank}: the sum{of}", elements)


@Exercise("lesson 1: alpha + n * beta; which messages wait for each other, in `ringlab learn 3 --show`")
def all_reduce_seconds(lesson: ModuleType) -> None:
    for p, nbytes in ((2, 1000), (5, 1 << 16), (8, 8 << 20)):
        wanted = 2 * (p - 1) * (ALPHA + nbytes * BETA)
        mistakes = {
            "p messages each way: rank 0 sends nothing to itself": 2 * p * (ALPHA + nbytes * BETA),
            "one way: the sum goes back as well": wanted / 2,
            "one alpha each way: every message pays it": 2 * (ALPHA + (p - 1) * nbytes * BETA),
        }
        got = lesson.all_reduce_seconds(p, nbytes, ALPHA, BETA)
        expect_close(got, wanted, f"all_reduce_seconds({p}, {nbytes}, ..)", mistakes=mistakes)


def predicted() -> dict[str, Predicted]:
    return {
        "seconds of the all_reduce of 8 MiB on 8 ranks": Predicted(
            14 * (ALPHA + (8 << 20) * BETA),
            "Rank 0 takes part in all 14 messages, 7 each way, one after the other, and each takes 6.7 ms.",
        )
    }


SHOWN = Shown(8, "all_reduce/naive", 8 << 20, call=lambda lesson, tensor: lesson.all_reduce(tensor))
