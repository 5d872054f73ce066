"""Recordings in other formats: Chakra's execution traces, torch profiles."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import simcomm
from collectives.errors import InputError, TooLarge
from replay.formats import read_any_recording
from replay.formats.chakra import COLLECTIVE, COMP, RECV, SEND, read_chakra, read_delimited, read_fields
from replay.simulation.replay import replay

STAR = simcomm.star(2, "10 Gbit/s", "5 us")


@given(st.binary(max_size=60))
def test_chakra_field_reader_raises_only_value_error(data: bytes) -> None:
    try:
        fields = list(read_fields(data))
    except ValueError:
        return
    assert all(number >= 0 for number, _ in fields)


def varint(value: int) -> bytes:
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*data, value])


def wire(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def node(number: int, kind: int, after: Sequence[int] = (), micros: int = 0, **attributes: int | str) -> bytes:
    message = wire(1, number) + wire(2, b"name") + wire(3, kind) + b"".join(wire(5, other) for other in after)
    for name, value in attributes.items():
        field = wire(9, value) if isinstance(value, int) else wire(29, value.encode())
        message += wire(10, wire(1, name.encode()) + field)
    return message + wire(7, micros)


def encoded(nodes: list[bytes]) -> bytes:
    return b"".join(varint(len(message)) + message for message in [wire(1, b"0.0.4"), *nodes])


def write_traces(folder: Path, *ranks: list[bytes]) -> Path:
    """Write the nodes of each rank. Return the last rank's file."""
    for rank, nodes in enumerate(ranks):
        file = folder / f"run.{rank}.et"
        file.write_bytes(encoded(nodes))
    return file


def test_chakra_reads_packed_dependencies_of_astra_sim(tmp_path: Path) -> None:
    """Dependencies are packed, as protobuf writes them. A collective without a group includes all ranks."""
    nodes = [
        node(0, COMP, micros=1500),
        node(1, COLLECTIVE, comm_type=0, comm_size=1 << 20) + wire(5, varint(0)),
        node(2, COMP, micros=500) + wire(5, varint(1)),
    ]
    read = read_any_recording(write_traces(tmp_path, nodes, nodes))
    assert (read.world_size, read.where, len(read.calls)) == (2, "chakra", 2)
    alone = simcomm.run("all_reduce/ring", STAR, nbytes=1 << 20).elapsed
    assert replay(read, STAR).elapsed == pytest.approx(1.5e-3 + alone + 5e-4)


def test_chakra_collective_runs_among_the_ranks_of_its_group(tmp_path: Path) -> None:
    groups = [{"pg_name": str(rank % 2), "pg_ranks": f"{rank % 2},{rank % 2 + 2}"} for rank in range(4)]
    ranks = [[node(0, COLLECTIVE, comm_type=0, comm_size=1 << 20, **group)] for group in groups]
    alone = simcomm.run("all_reduce/ring", STAR, nbytes=1 << 20).elapsed
    cluster = simcomm.star(4, "10 Gbit/s", "5 us")
    assert replay(read_chakra(write_traces(tmp_path, *ranks)), cluster).elapsed == pytest.approx(alone)


def message(number: int, rank: int, peer: int, sends: bool, after: Sequence[int] = ()) -> bytes:
    src, dst = (rank, peer) if sends else (peer, rank)
    return node(number, SEND if sends else RECV, after, comm_size=1 << 20, comm_src=src, comm_dst=dst)


@pytest.mark.parametrize("ranks", [2, 3])
def test_chakra_ring_completes_when_every_rank_sends_first(ranks: int, tmp_path: Path) -> None:
    """In ASTRA-sim's ring, a receive depends on an earlier send of its rank."""
    traces = []
    for rank in range(ranks):
        peers = (rank + 1) % ranks, (rank - 1) % ranks
        steps = range(2 * (ranks - 1))
        traces.append([message(at, rank, peers[at % 2], at % 2 == 0, [at - 1] if at else ()) for at in steps])
    seconds = simcomm.run("broadcast/naive", STAR, nbytes=1 << 20).elapsed
    run = replay(read_chakra(write_traces(tmp_path, *traces)), simcomm.star(ranks, "10 Gbit/s", "5 us"))
    assert run.elapsed == pytest.approx((ranks - 1) * seconds)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (encoded([node(1, COMP, [2]), node(2, COMP, [1])]), r"nodes \[1, 2\] form a dependency cycle"),
        (encoded([node(1, COMP, [7])]), "depends on node 7, which does not exist"),
        (encoded([node(1, COMP), node(1, COMP)]), "two nodes have the same id"),
        (encoded([wire(7, b"x")]), "field 7 has the wrong type"),
        (b"\x05ab", "message 0 has 5 bytes, but only 2 are left"),
    ],
)
def test_chakra_rejects_invalid_files(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "run.0.et").write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_any_recording(tmp_path / "run.0.et")


def test_chakra_error_names_the_missing_file_of_a_rank(tmp_path: Path) -> None:
    (tmp_path / "ddp.1.et").touch()
    with pytest.raises(InputError, match=r"ddp\.0\.et is missing"):
        read_any_recording(tmp_path / "ddp.1.et")


def test_chakra_rejects_more_messages_than_memory_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collectives.budget.Gigabyte.ENTRIES", 1)
    with pytest.raises(
        TooLarge, match=r"a\.0\.et: contains more than 1 messages; pass a smaller file, or allow more memory"
    ):
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


def test_torch_profiles_with_nccl_calls_become_a_recording(tmp_path: Path) -> None:
    for rank in range(2):
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(profile(rank, 2)))
    read = read_any_recording(tmp_path)
    assert (read.world_size, read.where, len(read.calls)) == (2, "kineto", 2)
    assert read.computed() == pytest.approx([550e-6] * 2)
    alone = simcomm.run("all_reduce/ring", STAR, nbytes=1 << 20).elapsed
    assert replay(read, STAR).elapsed == pytest.approx(200e-6 + max(alone, 300e-6) + 50e-6)


def test_torch_profiles_with_missing_ranks_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "rank1.json").write_text(json.dumps(profile(1, 2)))
    with pytest.raises(InputError, match="profiles of only rank 1, but the world size is 2"):
        read_any_recording(tmp_path)
