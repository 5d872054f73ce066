"""Recordings in other formats: Chakra's execution traces, torch profiles."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import simcomm
from collectives.errors import InputError, TooLarge
from replay.formats import read_any_recording
from replay.formats.chakra import COLLECTIVE, COMP, RECV, SEND, ChakraNode, read_chakra, write_chakra
from replay.formats.wire import (
    bytes_field,
    number_field,
    read_delimited,
    read_fields,
    read_varint,
    write_varint,
)
from replay.recording import Recording
from replay.recording_builder import RecordedCollective, RecordingBuilder
from replay.simulation.replay import replay

STAR = simcomm.star(2, "10 Gbit/s", "5 us")


@given(st.integers(0, (1 << 64) - 1))
def test_varint_round_trips(value: int) -> None:
    assert read_varint(write_varint(value), 0) == (value, len(write_varint(value)))


@given(st.binary(max_size=60))
def test_read_fields_reads_or_rejects_any_bytes(data: bytes) -> None:
    try:
        fields = list(read_fields(data))
    except ValueError:
        return
    assert all(field.number >= 0 for field in fields)


def program() -> Recording:
    """Return a recording of two all_reduces during computing, then messages both ways; in whole microseconds."""
    builder = RecordingBuilder("ddp", 2)
    for rank in range(2):
        calls = []
        for bucket in range(2):
            collective = RecordedCollective("all_reduce", (0, 1), 250_000)
            calls.append(builder.collective(rank, bucket, collective))
            builder.post(rank, calls[-1], seconds=1e-3 * (1 + rank))
        for call in calls:
            builder.wait(rank, call)
        other = 1 - rank
        halves = [
            builder.send(rank, other, 4096, key=(rank, other), tag=3),
            builder.recv(rank, other, 4096, key=(other, rank), tag=3),
        ]
        for half in halves:
            builder.post(rank, half)
        for half in halves:
            builder.wait(rank, half)
        builder.compute(rank, 5e-4)
    return builder.recording()


def test_chakra_round_trip_keeps_the_time(tmp_path: Path) -> None:
    files = write_chakra(program(), tmp_path / "ddp")
    assert [file.name for file in files] == ["ddp.0.et", "ddp.1.et"]
    read = read_any_recording(files[1])
    assert (read.world_size, read.where, len(read.calls)) == (2, "chakra", 8)
    assert replay(read, STAR).elapsed == pytest.approx(replay(program(), STAR).elapsed, rel=1e-12)


def trace_of(*nodes: ChakraNode) -> bytes:
    messages = [bytes_field(1, b"0.0.4"), *(node.to_bytes() for node in nodes)]
    return b"".join(write_varint(len(message)) + message for message in messages)


def test_chakra_reads_packed_dependencies_of_astra_sim(tmp_path: Path) -> None:
    """Dependencies are packed, as protobuf writes them. A collective without a group includes all ranks."""
    for rank in range(2):
        packed = bytes_field(5, write_varint(0))
        reduce = ChakraNode(1, "ALL_REDUCE", COLLECTIVE, [], 0, {"comm_type": 0, "comm_size": 1 << 20})
        after = number_field(1, 2) + bytes_field(2, b"next") + number_field(3, COMP) + bytes_field(5, write_varint(1))
        messages = [
            bytes_field(1, b"0.0.4"),
            ChakraNode(0, "work", COMP, [], 1500).to_bytes(),
            reduce.to_bytes() + packed,
            after + number_field(7, 500),
        ]
        content = b"".join(write_varint(len(message)) + message for message in messages)
        (tmp_path / f"run.{rank}.et").write_bytes(content)
    run = replay(read_chakra(tmp_path / "run.0.et"), STAR)
    alone = simcomm.run("all_reduce/ring", STAR, nbytes=1 << 20).elapsed
    assert run.elapsed == pytest.approx(1.5e-3 + alone + 5e-4)


def message(number: int, rank: int, peer: int, sends: bool, after: list[int]) -> ChakraNode:
    ends = {"comm_src": rank, "comm_dst": peer} if sends else {"comm_src": peer, "comm_dst": rank}
    return ChakraNode(number, "", SEND if sends else RECV, after, 0, {"comm_size": 1 << 20, **ends})


@pytest.mark.parametrize("ranks", [2, 3])
def test_chakra_ring_completes_when_every_rank_sends_first(ranks: int, tmp_path: Path) -> None:
    """In ASTRA-sim's ring, a receive depends on an earlier send of its rank."""
    for rank in range(ranks):
        nodes = [
            message(2 * step + half, rank, (rank + (1, -1)[half]) % ranks, half == 0, [2 * step + half - 1])
            for step in range(ranks - 1)
            for half in range(2)
        ]
        nodes[0].after = []
        (tmp_path / f"ring.{rank}.et").write_bytes(trace_of(*nodes))
    cluster = simcomm.star(ranks, "10 Gbit/s", "5 us")
    seconds = simcomm.run("broadcast/naive", STAR, nbytes=1 << 20).elapsed
    assert replay(read_chakra(tmp_path / "ring.0.et"), cluster).elapsed == pytest.approx((ranks - 1) * seconds)


def test_chakra_computing_continues_after_a_send(tmp_path: Path) -> None:
    (tmp_path / "late.0.et").write_bytes(trace_of(message(0, 0, 1, True, []), ChakraNode(1, "work", COMP, [0], 500)))
    (tmp_path / "late.1.et").write_bytes(trace_of(ChakraNode(0, "work", COMP, [], 9000), message(1, 1, 0, False, [0])))
    run = replay(read_chakra(tmp_path / "late.0.et"), STAR)
    assert run.finished.tolist() == pytest.approx([5e-4, 9e-3])  # no node of rank 1 waits for the message


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x05ab", "message 0 has 5 bytes, but only 2 are left"),
        (trace_of(ChakraNode(1, "a", COMP, [1])), "1 nodes form a dependency cycle"),
        (trace_of(ChakraNode(1, "a", COMP, [7])), "depends on node 7, which does not exist"),
        (trace_of(ChakraNode(1, "a", COMP), ChakraNode(1, "b", COMP)), "two nodes have the same id"),
        (trace_of(ChakraNode(1, "a", COLLECTIVE, numbers={"comm_type": 77})), "unsupported comm_type 77"),
        (b"", "not a Chakra trace"),
    ],
)
def test_chakra_rejects_invalid_traces(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "bad.0.et").write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_any_recording(tmp_path / "bad.0.et")


def test_chakra_names_a_missing_rank(tmp_path: Path) -> None:
    files = write_chakra(program(), tmp_path / "ddp")
    files[0].unlink()
    with pytest.raises(InputError, match=r"ddp\.0\.et is missing"):
        read_any_recording(files[1])


def test_chakra_rejects_more_messages_than_memory_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collectives.budget.Gigabyte.ENTRIES", 1)
    with pytest.raises(TooLarge, match=r"a\.0\.et: more than 1 messages; read only a part, or allow more memory"):
        list(read_delimited(b"\x00\x00", "a.0.et"))


def profile(rank: int, ranks: int) -> dict[str, object]:
    """Return a profiler trace: computing, a collective that overlaps computing, and computing after it."""

    def kernel(name: str, begin: float, seconds: float, **arguments: object) -> dict[str, object]:
        return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": begin, "dur": seconds} | {
            "args": arguments
        }

    sent = {"Collective name": "allreduce", "In msg nelems": 262144, "Out msg nelems": 262144, "Group size": ranks}
    return {
        "distributedInfo": {"rank": rank, "world_size": ranks, "backend": "nccl"},
        "traceEvents": [
            kernel("gemm", 1000.0, 300.0),
            kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 1200.0, 400.0, dtype="Float", **sent),
            kernel("gemm", 1300.0, 200.0),
            kernel("adam", 1650.0, 50.0),
        ],
    }


def test_torch_profiles_of_nccl_become_a_recording(tmp_path: Path) -> None:
    for rank in range(2):
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(profile(rank, 2)))
    read = read_any_recording(tmp_path)
    assert (read.world_size, read.where, len(read.calls)) == (2, "kineto", 2)
    assert read.computed() == pytest.approx([550e-6] * 2)
    alone = simcomm.run("all_reduce/ring", STAR, nbytes=1 << 20).elapsed
    assert replay(read, STAR).elapsed == pytest.approx(200e-6 + max(alone, 300e-6) + 50e-6)


def test_torch_profiles_of_some_ranks_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "rank1.json").write_text(json.dumps(profile(1, 2)))
    with pytest.raises(InputError, match="profiles of only rank 1, but the world size is 2"):
        read_any_recording(tmp_path)
