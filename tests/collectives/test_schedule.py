"""Programs traced into arrays: their counts, and the peer of each message."""

import numpy as np
import pytest
from declared_programs import declared
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives import InputError, Kind, find_algorithm, library, recv, send
from collectives.schedule.build import build_schedule
from collectives.step import Operation, Step, extent

SIZES = range(1, 18)


def said(programs: tuple[tuple[Step, ...], ...]) -> list[Operation]:
    """All operations of one rank, channel by channel."""
    return [op for program in programs for step in program for op in step]


every_algorithm = pytest.mark.parametrize("name", sorted(library()))


@pytest.mark.parametrize("p", SIZES)
def test_naive_algorithms_have_their_counts(p: int) -> None:
    for name, times in (("broadcast/naive", 1), ("reduce/naive", 1), ("all_reduce/naive", 2)):
        schedule = build_schedule(find_algorithm(name), p)
        assert (schedule.steps, schedule.messages) == (times * (p - 1), times * (p - 1))


@pytest.mark.parametrize("p", SIZES)
def test_ring_has_its_counts(p: int) -> None:
    schedule = build_schedule(find_algorithm("all_reduce/ring"), p)
    assert (schedule.steps, schedule.messages) == (2 * (p - 1), 2 * p * (p - 1))


@pytest.mark.parametrize("p", SIZES)
def test_unchunked_ring_has_its_counts(p: int) -> None:
    schedule = build_schedule(find_algorithm("all_reduce/unchunked_ring"), p)
    assert (schedule.steps, schedule.messages) == (1 + 2 * (p - 1), p * (p - 1))


@pytest.mark.parametrize("p", SIZES)
def test_algorithms_send_their_stated_bytes(p: int) -> None:
    n, root = 60 * p, p - 1
    sent = {
        name: build_schedule(find_algorithm(name), p, root if found.spec.rooted else 0).elements_sent(n)
        for name, found in library().items()
    }
    others = np.full(p - 1, n)
    assert sent["broadcast/naive"].tolist() == [0] * (p - 1) + [(p - 1) * n]
    assert sent["reduce/naive"].tolist() == [*others, 0]
    assert sent["all_reduce/naive"].tolist() == [(p - 1) * n, *others]
    assert sent["all_reduce/ring"].tolist() == [2 * (p - 1) * n // p] * p
    assert sent["all_reduce/unchunked_ring"].tolist() == [(p - 1) * n] * p


@settings(deadline=None)
@given(st.sampled_from(sorted(library())), st.integers(1, 9), st.integers(0, 40))
def test_elements_sent_add_up_for_any_length(name: str, p: int, n: int) -> None:
    schedule = build_schedule(find_algorithm(name), p)
    by_hand = [
        sum(extent(op.chunk, op.count, n, schedule.chunks) for op in said(programs) if op.kind is Kind.SEND)
        for programs in schedule.programs
    ]
    assert schedule.elements_sent(n).tolist() == by_hand


@every_algorithm
@pytest.mark.parametrize("p", [1, 2, 5, 8])
def test_matched_messages_agree(name: str, p: int) -> None:
    schedule = build_schedule(find_algorithm(name), p)
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


@every_algorithm
def test_schedule_equals_the_program(name: str) -> None:
    schedule = build_schedule(find_algorithm(name), 4)
    yielded = [op for programs in schedule.programs for op in said(programs)]
    assert [schedule.operation(index) for index in range(len(schedule.rank))] == yielded


def test_invalid_world_size_and_root_are_rejected() -> None:
    with pytest.raises(InputError, match="world_size is 0; give a whole number from 1 on"):
        build_schedule(find_algorithm("all_reduce/ring"), 0)
    for root in (-1, 4):
        with pytest.raises(InputError, match=rf"root {root} is not one of the ranks 0..3"):
            build_schedule(find_algorithm("broadcast/naive"), 4, root)


def test_empty_step_counts_as_a_step() -> None:
    def waits(rank, world_size):  # type: ignore[no-untyped-def]
        yield ()

    assert build_schedule(declared("all_reduce", waits), 3).steps == 1
