"""Build schedules of programs: their counts, and the matching of messages."""

import pytest
from declared_programs import declared
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives import InputError, Kind, find_algorithm, library, recv, send
from collectives.schedule.build import build_schedule
from collectives.step import Operation, Step, extent

SIZES = (1, 2, 3, 4, 7, 8, 17)


def operations_of(programs: tuple[tuple[Step, ...], ...]) -> list[Operation]:
    """Return all operations of one rank, channel by channel."""
    return [op for program in programs for step in program for op in step]


every_algorithm = pytest.mark.parametrize("name", sorted(library()))


@pytest.mark.parametrize("p", SIZES)
def test_algorithms_have_their_steps_and_messages(p: int) -> None:
    others = p - 1
    counts = {
        "broadcast/naive": (others, others),
        "reduce/naive": (others, others),
        "all_reduce/naive": (2 * others, 2 * others),
        "all_reduce/ring": (2 * others, 2 * p * others),
        "all_reduce/unchunked_ring": (1 + 2 * others, p * others),
    }
    for name, expected in counts.items():
        schedule = build_schedule(find_algorithm(name), p)
        assert (schedule.steps, schedule.messages) == expected


@pytest.mark.parametrize("p", SIZES)
def test_algorithms_send_their_stated_bytes(p: int) -> None:
    n, root = 60 * p, p - 1

    def sent(name: str) -> list[int]:
        algorithm = find_algorithm(name)
        return build_schedule(algorithm, p, root if algorithm.spec.rooted else 0).elements_sent(n).tolist()

    others = [n] * (p - 1)
    assert sent("broadcast/naive") == [0] * (p - 1) + [(p - 1) * n]
    assert sent("reduce/naive") == [*others, 0]
    assert sent("all_reduce/naive") == [(p - 1) * n, *others]
    assert sent("all_reduce/ring") == [2 * (p - 1) * n // p] * p
    assert sent("all_reduce/unchunked_ring") == [(p - 1) * n] * p


@settings(deadline=None)
@given(st.sampled_from(sorted(library())), st.integers(1, 9), st.integers(0, 40))
def test_elements_sent_add_up_for_any_length(name: str, p: int, n: int) -> None:
    schedule = build_schedule(find_algorithm(name), p)
    by_hand = [
        sum(extent(op.chunk, op.count, n, schedule.chunks) for op in operations_of(programs) if op.kind is Kind.SEND)
        for programs in schedule.programs
    ]
    assert schedule.elements_sent(n).tolist() == by_hand


@every_algorithm
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


def test_invalid_world_size_and_root_are_rejected() -> None:
    with pytest.raises(InputError, match="world_size must be a positive integer, not 0"):
        build_schedule(find_algorithm("all_reduce/ring"), 0)
    for root in (-1, 4):
        with pytest.raises(InputError, match=rf"root must be a rank from 0 to 3, not {root}"):
            build_schedule(find_algorithm("broadcast/naive"), 4, root)


def test_empty_step_counts_as_a_step() -> None:
    def waits(rank, world_size):  # type: ignore[no-untyped-def]
        yield ()

    assert build_schedule(declared("all_reduce", waits), 3).steps == 1
