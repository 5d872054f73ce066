"""A student's half-done and mistaken programs: each time the verifier says what to do next."""

from collections.abc import Callable
from typing import Any

import pytest

from collectives import Algorithm, ProgramError, algorithm, recv, recv_reduce, send, verify
from collectives.algorithms.naive import naive_broadcast, naive_reduce
from collectives.algorithms.ring import ring_all_gather, ring_reduce_scatter

# mypy: allow-untyped-defs


def problem(collective: str, function: Callable[..., Any], world_size: int = 3, root: int = 0, chunks: Any = 1) -> str:
    """What the verifier says of a program that is not done yet."""
    half_done: Algorithm = algorithm(collective, name="student", chunks=chunks)(function).__algorithm__  # type: ignore[attr-defined]
    with pytest.raises(ProgramError) as refusal:
        verify(half_done, world_size, root)
    return str(refusal.value)


# ---- nothing filled in


def test_a_body_of_dots_is_the_same_as_an_empty_program() -> None:
    def all_reduce(rank, world_size): ...

    assert problem("all_reduce", all_reduce, 2) == (
        "all_reduce/student, world size 2: at the end chunk 0 of rank 0 misses the contribution of rank 1; "
        "no rank yields a step (`yield` a step, `yield from` another program)"
    )


def test_forgetting_yield_is_the_same_too() -> None:
    def reduce(rank, world_size, root):
        send(root, 0)

    assert "no rank yields a step" in problem("reduce", reduce)


def test_calling_another_program_without_yield_from_is_the_same_too() -> None:
    def all_reduce(rank, world_size):
        naive_reduce(rank, world_size, 0)
        naive_broadcast(rank, world_size, 0)

    assert "`yield from` another program" in problem("all_reduce", all_reduce)


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


def test_broadcast_that_reduces_instead_of_receiving() -> None:
    def broadcast(rank, world_size, root):
        for peer in range(world_size):
            if peer != root and rank == root:
                yield send(peer, 0)
            elif peer == rank != root:
                yield recv_reduce(root, 0)

    assert problem("broadcast", broadcast).endswith(
        "recv_reduce(from rank 0, chunk 0): chunk 0 holds nothing yet (only the root, rank 0, starts with data), "
        "so nothing can be reduced into it"
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


def test_all_reduce_that_lacks_the_broadcast() -> None:
    def all_reduce(rank, world_size):
        yield from naive_reduce(rank, world_size, 0)

    assert problem("all_reduce", all_reduce) == (
        "all_reduce/student, world size 3: at the end chunk 0 of rank 1 misses the contribution of ranks 0, 2: "
        "rank 0 never sends chunk 0 (it has held ranks 0, 1, 2 of it since step 1); rank 1 never receives chunk 0"
    )


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


def test_ring_that_gathers_from_the_wrong_chunk() -> None:
    def ring(rank, world_size):
        left, right = (rank - 1) % world_size, (rank + 1) % world_size
        for step in range(world_size - 1):
            yield send(right, (rank - step) % world_size), recv_reduce(left, (rank - 1 - step) % world_size)
        yield from ring_all_gather(rank, world_size)  # here rank r holds chunk r + 1, not r

    assert "at the end chunk 0 of rank 0 misses the contribution of" in problem("all_reduce", ring, chunks=None)


def test_ring_that_runs_one_step_too_long() -> None:
    def ring(rank, world_size):
        left, right = (rank - 1) % world_size, (rank + 1) % world_size
        for step in range(world_size):
            yield send(right, (rank - step) % world_size), recv_reduce(left, (rank - 1 - step) % world_size)

    message = problem("all_reduce", ring, chunks=None)
    assert "step 2: recv_reduce(from rank" in message
    assert "would be counted twice: chunk 1 already holds" in message
