"""Check programs with several channels, and programs of a group of ranks."""

from collections.abc import Callable
from typing import Any

import numpy as np
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
from collectives.algorithms.ring import ring_all_reduce
from collectives.proof.completion import completion_order
from collectives.schedule.build import build_schedule

# mypy: allow-untyped-defs


def both_ways(rank, world_size):
    """Reduce half of the buffer in each direction of the ring."""
    mirrored = range(world_size - 1, -1, -1)
    return (
        on_group(ring_all_reduce(rank, world_size), range(world_size)),
        on_group(ring_all_reduce(world_size - 1 - rank, world_size), mirrored, first_chunk=world_size),
    )


TWO_RINGS = declared("all_reduce", both_ways, chunks=lambda world_size: 2 * world_size)


@pytest.mark.parametrize("p", range(1, 10))
def test_two_channels_are_verified_together(p: int) -> None:
    report = verify(TWO_RINGS, p)
    assert (report.steps, report.messages) == (2 * (p - 1), 4 * p * (p - 1))
    assert report.sent_share == 2 * (p - 1) / p
    assert report.ports == (0 if p == 1 else 2)


def test_schedule_lists_channels_in_order() -> None:
    schedule = build_schedule(TWO_RINGS, 3)
    assert schedule.channels == 2
    assert [len(channels) for channels in schedule.programs] == [2, 2, 2]
    assert schedule.channel.tolist() == ([0] * 8 + [1] * 8) * 3
    assert (schedule.channel[schedule.match] == schedule.channel).all()
    assert sorted(completion_order(schedule)) == [(r, c, s) for r in range(3) for c in range(2) for s in range(4)]


def test_algorithm_with_channels_has_no_single_program() -> None:
    assert len(TWO_RINGS.channels(0, 3)) == 2
    with pytest.raises(InputError, match="all_reduce/both_ways has 2 channels"):
        TWO_RINGS.steps(0, 3)
    assert len(find_algorithm("all_reduce/ring").channels(0, 3)) == 1


@pytest.mark.parametrize("p", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("n", [0, 1, 7, 64])
def test_engine_reduces_on_two_channels(p: int, n: int) -> None:
    data = [np.arange(n) * (rank + 1) + rank for rank in range(p)]
    arrays = [array.copy() for array in data]
    simcomm.run(TWO_RINGS, simcomm.star(p, "1 GB/s", "1 us"), buffers=arrays)
    assert all(np.array_equal(array, np.sum(data, axis=0)) for array in arrays)


def test_channels_share_bandwidth_but_not_latency() -> None:
    p, nbytes = 4, 8 << 20
    cluster = simcomm.star(p, "8 Gbit/s", "10 us")
    trace = simcomm.run(TWO_RINGS, cluster, nbytes)
    assert trace.elapsed == pytest.approx(simcomm.run("all_reduce/ring", cluster, nbytes).elapsed, rel=1e-9)
    assert {message.channel for message in trace.messages} == {0, 1}


def copies(on_two_channels: bool) -> Callable[..., Any]:
    def half(chunk):
        yield copy(chunk, into=chunk + 2)

    def whole():
        yield copy(0, into=2), copy(1, into=3)

    return lambda rank, world_size, root: (half(0), half(1)) if on_two_channels else whole()


@pytest.mark.parametrize(("on_two_channels", "seconds"), [(False, 2e-6), (True, 1e-6)])
def test_local_work_waits_for_its_own_channel_only(on_two_channels: bool, seconds: float) -> None:
    algorithm = declared("broadcast", copies(on_two_channels), name="copies", chunks=2, scratch=2)
    cluster = simcomm.star(1, "8 Gbit/s", "0 us", Transport("test", gamma=1e-9))
    assert simcomm.run(algorithm, cluster, 2000).elapsed == pytest.approx(seconds)


def test_messages_match_within_a_channel() -> None:
    def crossed(rank, world_size):
        def first():
            yield send(1 - rank, 0) if rank == 0 else recv_reduce(1 - rank, 0)

        def second():
            yield send(1 - rank, 1) if rank == 0 else recv_reduce(1 - rank, 1)

        return (first(), second()) if rank == 0 else (second(), first())

    with pytest.raises(ProgramError, match="these are different chunks of the buffer"):
        verify(declared("all_reduce", crossed, chunks=2), 2)


def test_unmatched_message_names_its_channel() -> None:
    def alone(rank, world_size):
        def nothing():
            yield from ()

        def sends():
            yield send(1, 0)

        return (nothing(), sends()) if rank == 0 else nothing()

    with pytest.raises(ProgramError) as failure:
        verify(declared("all_reduce", alone, name="wrong", chunks=1), 2)
    assert IN_LINES.sub("", str(failure.value)) == (
        "all_reduce/wrong, world size 2, rank 0, channel 1, step 0: send(to rank 1, chunk 0) has no match: "
        "rank 0 sends 1 message to rank 1 on channel 1, which receives 0 from it"
    )


def test_deadlock_names_its_channel() -> None:
    def stuck(rank, world_size):
        def idle():
            yield from ()

        def waits():
            yield recv_reduce(1 - rank, 0)
            yield send(1 - rank, 0)

        return idle(), waits()

    with pytest.raises(ProgramError, match=r"rank 0 in step 0 of channel 1 \(.*\) waits for rank 1 in recv_reduce"):
        verify(declared("all_reduce", stuck, chunks=1), 2)


def test_failing_program_names_its_channel() -> None:
    def failing(rank, world_size):
        def idle():
            yield from ()

        def divides():
            yield ()
            yield send(1 // 0, 0)

        return idle(), divides()

    with pytest.raises(ProgramError, match="rank 0, channel 1, step 1: the program fails with ZeroDivisionError"):
        verify(declared("all_reduce", failing, chunks=1), 2)


def test_group_translates_ranks_and_chunks() -> None:
    program = [(send(1, 2), recv(0, 3, count=2), copy(0, into=4))]
    (step,) = on_group(iter(program), [7, 5], count=3, first_chunk=10)
    assert step == (send(5, 16, count=3), recv(7, 19, count=6), copy(10, into=22, count=3))


def test_peer_outside_the_group_is_rejected() -> None:
    with pytest.raises(InputError, match="rank 2 does not exist in a group of 2"):
        list(on_group(iter([send(2, 0)]), [4, 5]))


def test_messages_to_one_rank_use_one_port() -> None:
    assert verify(find_algorithm("all_gather/bruck"), 7).ports == 1
    assert verify(find_algorithm("all_to_all/direct"), 7).ports == 6
