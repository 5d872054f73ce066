"""A student's half-done and mistaken programs: each time the verifier says what to do next."""

from collections.abc import Callable
from typing import Any

import pytest

from collectives import Algorithm, ProgramError, algorithm, recv, send, verify
from collectives.algorithms.naive import naive_broadcast, naive_reduce
from collectives.algorithms.ring import ring_reduce_scatter

# mypy: allow-untyped-defs


def problem(collective: str, function: Callable[..., Any], world_size: int = 3, root: int = 0, chunks: Any = 1) -> str:
    """What the verifier says of a program that is not done yet."""
    half_done: Algorithm = algorithm(collective, name="student", chunks=chunks)(function).__algorithm__  # type: ignore[attr-defined]
    with pytest.raises(ProgramError) as refusal:
        verify(half_done, world_size, root)
    return str(refusal.value)


# ---- nothing filled in


def test_what_yields_nothing_is_told_how_to_begin() -> None:
    def all_reduce(rank, world_size): ...

    assert problem("all_reduce", all_reduce, 2) == (
        "all_reduce/student, world size 2: at the end chunk 0 of rank 0 misses the contribution of rank 1; "
        "no rank yields a step (`yield` a step, `yield from` another program)"
    )


def test_yield_in_place_of_yield_from_is_told() -> None:
    def all_reduce(rank, world_size):
        yield naive_reduce(rank, world_size, 0)

    assert (
        "is no operation; a step holds send, recv, recv_reduce, copy and reduce; another program runs by `yield from`"
        in (problem("all_reduce", all_reduce))
    )


# ---- broadcast


def test_broadcast_that_leaves_out_the_last_rank() -> None:
    def broadcast(rank, world_size, root):
        yield from naive_broadcast(rank, world_size - 1, root) if rank < world_size - 1 else ()

    assert problem("broadcast", broadcast).endswith(
        "at the end chunk 0 of rank 2 holds nothing; it should hold the data of rank 0: it came last to rank 1, in "
        "step 0, which never sends it on; rank 2 never receives chunk 0"
    )


# ---- reduce


def test_reduce_that_overwrites_instead_of_adding() -> None:
    def reduce(rank, world_size, root):
        for peer in range(world_size):
            if rank == root != peer:
                yield recv(peer, 0)
            elif rank == peer != root:
                yield send(root, 0)

    assert problem("reduce", reduce).endswith(
        "at the end chunk 0 of rank 0 misses the contribution of ranks 0, 1: rank 0 had that of rank 0 until step 0, "
        "where recv(from rank 1, chunk 0) put the data of rank 1 in its place"
    )


# ---- all_reduce


def test_all_reduce_that_lacks_the_reduce() -> None:
    def all_reduce(rank, world_size):
        yield from naive_broadcast(rank, world_size, 0)

    assert problem("all_reduce", all_reduce).endswith(
        "at the end chunk 0 of rank 0 misses the contribution of ranks 1, 2: "
        "rank 1 never sends chunk 0; rank 0 never receives chunk 0"
    )


# ---- ring


def test_ring_without_the_all_gather() -> None:
    message = problem("all_reduce", ring_reduce_scatter, chunks=None)
    assert message == (
        "all_reduce/student, world size 3: at the end chunk 1 of rank 0 misses the contribution of rank 1: rank 1 "
        "never sends chunk 1 (it has held ranks 0, 1, 2 of it since step 1); rank 0 receives chunk 1 last in step 0, "
        "where recv_reduce(from rank 2, chunk 1) brings the data of rank 2"
    )
