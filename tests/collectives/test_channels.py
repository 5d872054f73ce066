"""Check programs with several channels, and programs of a group of ranks."""

from collections.abc import Callable
from typing import Any

import pytest
from declared_programs import declared
from test_broken_programs import IN_LINES

import simcomm
from collectives import (
    InputError,
    ProgramError,
    Transport,
    copy,
    find_algorithm,
    on_group,
    recv,
    recv_reduce,
    send,
    verify,
)

# mypy: allow-untyped-defs


def copies(on_two_channels: bool) -> Callable[..., Any]:
    def half(chunk):
        yield copy(chunk, into=chunk + 2)

    def whole():
        yield copy(0, into=2), copy(1, into=3)

    return lambda rank, world_size, root: (half(0), half(1)) if on_two_channels else whole()


@pytest.mark.parametrize(("on_two_channels", "seconds"), [(False, 2e-6), (True, 1e-6)])
def test_local_operation_waits_only_for_its_own_channel(on_two_channels: bool, seconds: float) -> None:
    algorithm = declared("broadcast", copies(on_two_channels), name="copies", chunks=2, scratch=2)
    cluster = simcomm.star(1, "8 Gbit/s", "0 us", Transport("test", gamma=1e-9))
    assert simcomm.run(algorithm, cluster, 2000).elapsed == pytest.approx(seconds)


def test_send_matches_a_receive_of_its_own_channel() -> None:
    def crossed(rank, world_size):
        def first():
            yield send(1 - rank, 0) if rank == 0 else recv_reduce(1 - rank, 0)

        def second():
            yield send(1 - rank, 1) if rank == 0 else recv_reduce(1 - rank, 1)

        return (first(), second()) if rank == 0 else (second(), first())

    with pytest.raises(ProgramError, match="both must be the same chunk of the buffer"):
        verify(declared("all_reduce", crossed, chunks=2), 2)


def unmatched(rank, world_size):
    if rank == 0:
        yield send(1, 0)


def stuck(rank, world_size):
    yield recv_reduce(1 - rank, 0)
    yield send(1 - rank, 0)


def failing(rank, world_size):
    yield ()
    yield send(1 // 0, 0)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (unmatched, "rank 0, channel 1, step 0: send(to rank 1, chunk 0) has no match: rank 0 sends 1 message to rank "
         "1 on channel 1, which receives 0 from it"),
        (stuck, "deadlock: rank 0 in step 0 of channel 1 waits for rank 1 in recv_reduce"),
        (failing, "rank 0, channel 1, step 1: the program fails with ZeroDivisionError"),
    ],
)  # fmt: skip
def test_program_error_names_the_channel(program: Any, message: str) -> None:
    def on_second(rank, world_size):
        return iter(()), program(rank, world_size)

    with pytest.raises(ProgramError) as failure:
        verify(declared("all_reduce", on_second, chunks=1), 2)
    assert message in IN_LINES.sub("", str(failure.value))


def test_on_group_maps_ranks_and_chunks_of_a_program() -> None:
    program = [(send(1, 2), recv(0, 3, count=2), copy(0, into=4))]
    (step,) = on_group(iter(program), [7, 5], count=3, first_chunk=10)
    assert step == (send(5, 16, count=3), recv(7, 19, count=6), copy(10, into=22, count=3))


def test_peer_outside_the_group_is_rejected() -> None:
    with pytest.raises(InputError, match="rank 2 does not exist in a group of 2"):
        list(on_group(iter([send(2, 0)]), [4, 5]))


def test_ports_are_the_most_ranks_that_a_rank_sends_to_at_once() -> None:
    assert verify(find_algorithm("all_gather/bruck"), 7).ports == 1
    assert verify(find_algorithm("all_to_all/direct"), 7).ports == 6
