"""Check the schedules of programs: sent elements, matching of messages, and several reductions in one step."""

from typing import Any

import numpy as np
import pytest
from declared_programs import declared

import simcomm
from collectives import Algorithm, Kind, ProgramError, copy, find_algorithm, library, recv, recv_reduce, reduce, send
from collectives.schedule.build import build_schedule
from collectives.step import Operation, Step, extent


def operations_of(programs: tuple[tuple[Step, ...], ...]) -> list[Operation]:
    return [op for program in programs for step in program for op in step]


@pytest.mark.parametrize("name", sorted(library()))
@pytest.mark.parametrize("p", [1, 2, 5, 8])
def test_schedule_has_the_operations_and_matches_of_its_program(name: str, p: int) -> None:
    schedule = build_schedule(find_algorithm(name), p)
    yielded = [op for programs in schedule.programs for op in operations_of(programs)]
    assert [schedule.operation(index) for index in range(len(schedule.rank))] == yielded
    for n in (0, 1, p + 1, 40):
        sizes = [
            [extent(op.chunk, op.count, n, schedule.chunks) for op in operations_of(programs) if op.kind is Kind.SEND]
            for programs in schedule.programs
        ]
        assert schedule.elements_sent(n).tolist() == list(map(sum, sizes))
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


def star_reduce(order: list[int]) -> Algorithm:
    """All ranks send to rank 0, which reduces their data in this order and then sends the result to all."""

    def to_zero_and_back(rank: int, world_size: int) -> Any:
        if rank == 0:
            yield tuple(recv_reduce(peer, 0) for peer in order)
            yield tuple(send(peer, 0) for peer in order)
        else:
            yield send(0, 0)
            yield recv(0, 0)

    return declared("all_reduce", to_zero_and_back, chunks=1)


@pytest.mark.parametrize(("order", "total"), [([3, 1, 2], 1.0), ([1, 3, 2], 1.0), ([2, 1, 3], 0.0), ([1, 2, 3], 0.0)])
def test_simulator_reduces_in_program_order(order: list[int], total: float) -> None:
    """1 is lost where it is added to 1e8 or its opposite. The messages of rank 3 are slow and arrive last."""
    links = [(f"h{i}", "s0", "1 GB/s", "1 us" if i < 3 else "1 ms") for i in range(4)]
    buffers = [np.array([value], np.float32) for value in (0, -1e8, 1, 1e8)]
    simcomm.run(star_reduce(order), simcomm.from_links(links), buffers=buffers)
    assert [buffer.item() for buffer in buffers] == [total] * 4


@pytest.mark.parametrize("other", [recv(2, 0), recv(2, 1, count=1), copy(2, into=0), reduce(2, into=0)])
def test_second_write_to_a_reduced_chunk_is_rejected(other: Operation) -> None:
    def mixed(rank: int, world_size: int) -> Any:
        if rank == 0:
            yield recv_reduce(1, 0, count=2), recv_reduce(2, 0, count=2), other
        else:
            yield send(0, 0, count=2)

    chunk = other.into
    with pytest.raises(
        ProgramError, match=rf"step 0 \(.*\): {other.kind.name.lower()}\(.*: chunk {chunk} is written twice"
    ):
        build_schedule(declared("all_reduce", mixed, chunks=2, scratch=2), 3)
