"""Check several messages that one step reduces into the same chunk: each counts once, in the order of the step."""

from typing import Any

import numpy as np
import pytest

import simcomm
from collectives import Algorithm, ProgramError, copy, recv, recv_reduce, reduce, send, verify
from collectives.schedule.build import build_schedule
from collectives.spec import find_spec
from collectives.step import Operation


def declared(program: Any, chunks: int = 1) -> Algorithm:
    return Algorithm(find_spec("all_reduce"), program.__name__, program, chunks, chunks)


def star_reduce(order: list[int]) -> Algorithm:
    """All ranks send to rank 0, which reduces their data in this order and then sends the result to all."""

    def to_zero_and_back(rank: int, world_size: int) -> Any:
        if rank == 0:
            yield tuple(recv_reduce(peer, 0) for peer in order)
            yield tuple(send(peer, 0) for peer in order)
        else:
            yield send(0, 0)
            yield recv(0, 0)

    return declared(to_zero_and_back)


@pytest.mark.parametrize(("order", "total"), [([3, 1, 2], 1.0), ([1, 3, 2], 1.0), ([2, 1, 3], 0.0), ([1, 2, 3], 0.0)])
def test_simulator_reduces_in_program_order(order: list[int], total: float) -> None:
    """1 is lost where it is added to 1e8 or its opposite. The messages of rank 3 are slow and arrive last."""
    links = [(f"h{i}", "s0", "1 GB/s", "1 us" if i < 3 else "1 ms") for i in range(4)]
    buffers = [np.array([value], np.float32) for value in (0, -1e8, 1, 1e8)]
    simcomm.run(star_reduce(order), simcomm.from_links(links), buffers=buffers)
    assert [buffer.item() for buffer in buffers] == [total] * 4


def test_contribution_counted_twice_in_a_step_is_found() -> None:
    def twice(rank: int, world_size: int) -> Any:
        yield send(1 - rank, 0), send(1 - rank, 0), recv_reduce(1 - rank, 0), recv_reduce(1 - rank, 0)

    with pytest.raises(ProgramError, match=r"the contribution of rank \d would be counted twice"):
        verify(declared(twice), 2)


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
        build_schedule(declared(mixed, chunks=2), 3)
