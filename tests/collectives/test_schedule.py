"""Check the schedules of programs: sent elements, and the matching of messages."""

import pytest
from declared_programs import declared
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives import Kind, find_algorithm, library, recv, send
from collectives.schedule.build import build_schedule
from collectives.step import Operation, Step, extent


def operations_of(programs: tuple[tuple[Step, ...], ...]) -> list[Operation]:
    """Return all operations of one rank, channel by channel."""
    return [op for program in programs for step in program for op in step]


@settings(deadline=None)
@given(st.sampled_from(sorted(library())), st.integers(1, 9), st.integers(0, 40))
def test_elements_sent_add_up_for_any_length(name: str, p: int, n: int) -> None:
    schedule = build_schedule(find_algorithm(name), p)
    by_hand = [
        sum(extent(op.chunk, op.count, n, schedule.chunks) for op in operations_of(programs) if op.kind is Kind.SEND)
        for programs in schedule.programs
    ]
    assert schedule.elements_sent(n).tolist() == by_hand


@pytest.mark.parametrize("name", sorted(library()))
@pytest.mark.parametrize("p", [1, 2, 5, 8])
def test_schedule_equals_the_program_with_matched_messages(name: str, p: int) -> None:
    schedule = build_schedule(find_algorithm(name), p)
    yielded = [op for programs in schedule.programs for op in operations_of(programs)]
    assert [schedule.operation(index) for index in range(len(schedule.rank))] == yielded
    for index, match in enumerate(schedule.match.tolist()):
        op = schedule.operation(index)
        if op.kind.is_local:
            assert match == -1
            continue
        other = schedule.operation(match)
        assert schedule.match[match] == index
        assert op.kind.receives != other.kind.receives
        assert (op.peer, other.peer) == (schedule.rank[match], schedule.rank[index])
        assert op.count == other.count


def test_kth_send_meets_kth_receive() -> None:
    def twice(rank, world_size):  # type: ignore[no-untyped-def]
        if rank == 0:
            yield send(1, 0), send(1, 1)
        else:
            yield recv(0, 0)
            yield recv(0, 1)

    schedule = build_schedule(declared("all_reduce", twice), 2)
    assert schedule.match.tolist() == [2, 3, 0, 1]
    assert schedule.step.tolist() == [0, 0, 0, 1]


def test_empty_step_counts_as_a_step() -> None:
    def waits(rank, world_size):  # type: ignore[no-untyped-def]
        yield ()

    assert build_schedule(declared("all_reduce", waits), 3).steps == 1
