"""The verifier proves the library at many world sizes, and that none of its steps is spare."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives import (
    Algorithm,
    ProgramError,
    algorithm,
    find_algorithm,
    library,
    recv,
    recv_reduce,
    send,
    verify,
)
from collectives.schedule import trace
from collectives.verify import completion_order

# mypy: allow-untyped-defs


def declared(collective: str, function: Callable[..., Any], **options: Any) -> Algorithm:
    found = algorithm(collective, **options)(function).__algorithm__  # type: ignore[attr-defined]
    assert isinstance(found, Algorithm)
    return found


@pytest.mark.parametrize("name", sorted(library()))
@pytest.mark.parametrize("world_size", range(1, 18))
def test_the_library_is_correct(name: str, world_size: int) -> None:
    found = find_algorithm(name)
    for root in range(world_size if found.spec.rooted else 1):
        report = verify(found, world_size, root)
        assert (report.world_size, report.root) == (world_size, root)


@pytest.mark.parametrize("p", range(2, 18))
def test_the_ring_sends_the_least_and_the_unchunked_ring_half_the_ranks_times_as_much(p: int) -> None:
    ring = verify(find_algorithm("all_reduce/ring"), p).sent_share
    assert ring == 2 * (p - 1) / p
    assert verify(find_algorithm("all_reduce/unchunked_ring"), p).sent_share == pytest.approx(p / 2 * ring, rel=1e-12)


def test_a_message_may_meet_its_receive_in_a_later_step() -> None:
    def staggered(rank, world_size, root):
        if rank == 0:
            yield send(1, 0), send(1, 0)
        else:
            yield recv(0, 0)
            yield recv(0, 0)

    assert verify(declared("broadcast", staggered, chunks=1), 2).messages == 2


def test_recursive_doubling_sends_what_was_there_before_the_step() -> None:
    def doubling(rank, world_size):
        distance = 1
        while distance < world_size:
            yield send(rank ^ distance, 0), recv_reduce(rank ^ distance, 0)
            distance *= 2

    report = verify(declared("all_reduce", doubling, chunks=1), 16)
    assert (report.steps, report.messages, report.sent_share) == (4, 64, 4.0)


@settings(deadline=None)
@given(st.sampled_from(sorted(library())), st.integers(1, 9))
def test_steps_complete_once_each_and_in_order(name: str, p: int) -> None:
    schedule = trace(find_algorithm(name), p)
    done = list(completion_order(schedule))
    assert len(done) == len(set(done)) == sum(len(program) for program in schedule.programs)
    for rank in range(p):
        assert [step for who, step in done if who == rank] == list(range(len(schedule.programs[rank])))


def faulty(program: Callable[..., Any], rank_hit: int, step_hit: int) -> Callable[..., Any]:
    """The same program, but one rank forgets one of its steps."""

    def forgetful(rank, world_size):
        for number, step in enumerate(program(rank, world_size)):
            if (rank, number) != (rank_hit, step_hit):
                yield step

    return forgetful


@settings(deadline=None)
@given(st.sampled_from(["naive", "ring", "unchunked_ring"]), st.integers(2, 8), st.data())
def test_no_step_of_the_library_can_be_left_out(name: str, p: int, data: st.DataObject) -> None:
    right = find_algorithm(f"all_reduce/{name}")
    rank = data.draw(st.integers(0, p - 1))
    step = data.draw(st.integers(0, len(list(right.steps(rank, p))) - 1))
    options = {"chunks": right.chunks_rule, "scratch": right.scratch_rule}
    with pytest.raises(ProgramError):
        verify(declared("all_reduce", faulty(right.function, rank, step), **options), p)
