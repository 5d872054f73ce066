"""Recordings are built, written and read, and invalid ones are rejected."""

import json
from pathlib import Path
from typing import Any

import pytest

from collectives.errors import InputError, InputWarning
from replay.recording import Did, SourceLine, read_recording
from replay.recording_builder import RecordedCollective, RecordingBuilder


def ring(world_size: int = 4) -> RecordingBuilder:
    """Return a builder with an all_reduce of all ranks, after which each rank sends to its right neighbor."""
    builder = RecordingBuilder("train.py --steps 1", world_size)
    line = SourceLine("train.py", 12, "dist.all_reduce(x)")
    collective = RecordedCollective("all_reduce", tuple(range(world_size)), elements=1000)
    for rank in range(world_size):
        builder.begin(rank, "step", 3, seconds=0.25)
        call = builder.collective(rank, ("reduce", 0), collective, location=line)
        builder.post(rank, call, seconds=0.5)
        builder.wait(rank, call, took=0.125)
        right, left = (rank + 1) % world_size, (rank - 1) % world_size
        halves = [builder.send(rank, right, 64, key=(rank, right)), builder.recv(rank, left, 64, key=(left, rank))]
        for half in halves:
            builder.post(rank, half)
        for half in halves:
            builder.wait(rank, half)
        builder.end(rank, "step", 3)
        builder.compute(rank, 2.0)
    return builder


def test_recording_round_trips_through_a_file(tmp_path: Path) -> None:
    made = ring().recording()
    made.write(tmp_path / "run.json")
    read = read_recording(tmp_path / "run.json")
    assert read.to_dict() == made.to_dict()
    assert (read.calls, read.entries, read.streams) == (made.calls, made.entries, made.streams)
    assert read.computed().tolist() == [2.75] * 4
    assert read.took().tolist() == [2.875] * 4
    assert read.describe(0) == "all_reduce of 4000 bytes in group 'world' at train.py:12"
    assert read.describe(1) == "send to rank 1 of 64 bytes, tag 0"


def log(builder: RecordingBuilder, stream: int, did: Did, number: int, seconds: float = 0.0) -> None:
    builder._logs[stream].append((did, number, seconds, 0.0))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda b: log(b, 0, Did.POST, 0), "call 0 is posted 2 times"),
        (lambda b: log(b, 1, Did.WAIT, 0), "belongs to rank 1, but its call 0 belongs to rank 0"),
        (lambda b: log(b, 0, Did.WAIT, 0, seconds=-1.0), "must be between 0 and .* seconds, not -1"),
        (lambda b: b.wait(0, b.send(0, 1, 8, key="new")), "waits for call 12, which is not posted earlier"),
        (lambda b: b.send(0, 1, 8, key=(0, 1)), "both send or both receive message"),
        (lambda b: b.recv(2, 0, 8, key=(b.send(0, 1, 8, key="x"), b._keys["x"])[0] and "x"), "do not name each other"),
        (lambda b: b.collective(0, ("reduce", 0), RecordedCollective("all_reduce", (0,), 8)), "with a different group"),
        (lambda b: b.collective(0, "other", RecordedCollective("all_reduce", (1,), 8)), "not in its group"),
        (
            lambda b: b.collective(0, "other", RecordedCollective("broadcast", (0, 1), 8, root=2)),
            "root must be less than 2, not 2",
        ),
        (lambda b: [b.signal(0, "s"), b.signal(1, "s")], "a signal is sent twice"),
    ],
)
def test_recording_builder_rejects_impossible_logs(change: Any, message: str) -> None:
    builder = ring()
    change(builder)
    with pytest.raises(InputError, match=message):
        builder.recording()


def test_recording_error_names_ranks_of_mismatched_collectives() -> None:
    builder = RecordingBuilder("wrong.py", 2)
    builder.collective(0, "k", RecordedCollective("all_reduce", (0, 1), 8), location=SourceLine("wrong.py", 3))
    builder.collective(1, "k", RecordedCollective("broadcast", (0, 1), 8), location=SourceLine("wrong.py", 5))
    with pytest.raises(InputError, match=r"rank 0: all_reduce .* at wrong.py:3 - rank 1: broadcast .* at wrong.py:5"):
        builder.recording()


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("schema_version", 99, "not a recording of schema version 1"),
        ("world_size", 0, "world_size must be between 1"),
        ("calls", {"rows": 1}, "must be a table with the keys rows, columns, not"),
        ("streams", [], "rank 0 has no stream"),
        ("title", "two\u202eracks", "must contain only printable characters"),
    ],
)
def test_read_recording_rejects_invalid_files(key: str, value: object, message: str, tmp_path: Path) -> None:
    content = ring().recording().to_dict() | {key: value}
    path = tmp_path / "run.json"
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match=message):
        read_recording(path)


def test_read_recording_accepts_the_old_key_sites_with_a_warning(tmp_path: Path) -> None:
    content = ring().recording().to_dict()
    content["sites"] = content.pop("locations")
    content["calls"]["columns"]["site"] = content["calls"]["columns"].pop("location")
    (tmp_path / "run.json").write_text(json.dumps(content))
    with pytest.warns(InputWarning, match="is now location"):
        read = read_recording(tmp_path / "run.json")
    assert read.to_dict() == ring().recording().to_dict()
