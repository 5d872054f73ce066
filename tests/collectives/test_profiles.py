"""Read torch's profiles of a real run as spans, and reject other files."""

import gzip
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import real_workers
import viz_traces

import ringlab
import viz
from collectives import InputError, Trace
from collectives.input_files import FileBytes
from collectives.records.kineto import read_profile, read_run
from realcomm.launching.launcher import launch

STEPS, RANKS = 3, 2


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[float]]]:
    """Return a directory with the profile of a real training on gloo, and the ends of its phases."""
    folder = tmp_path_factory.mktemp("profile")
    ended = launch(real_workers.profile_training, RANKS, folder, ".pt.trace.json.gz", timeout=120)
    return folder, ended


def test_profiler_trace_has_the_phases_and_times_of_its_run(run: tuple[Path, list[list[float]]]):
    folder, ended = run
    trace = read_profile(folder)
    assert (trace.kind, trace.world_size, len(trace.messages)) == ("measured", RANKS, 0)
    counted = Counter((span.rank, span.step, span.name) for span in trace.spans)
    phases = {"load": 1, "forward": 1, "backward": 1, "sync": 2, "optimizer": 1}
    assert counted == {(r, s, name): n for r in range(RANKS) for s in range(STEPS) for name, n in phases.items()}
    last = {(span.rank, span.step, span.name): span.end for span in trace.spans}
    for rank in range(RANKS):
        for step in range(STEPS):
            ends = [last[rank, step, name] for name in ("load", "forward", "backward", "sync", "optimizer")]
            assert ends == sorted(ends)
        ours = [ended[rank][3 * step + number] - ended[rank][0] for step in range(STEPS) for number in range(3)]
        names = ("backward", "sync", "optimizer")
        theirs = [last[rank, step, name] - last[rank, 0, "backward"] for step in range(STEPS) for name in names]
        assert theirs == pytest.approx(ours, abs=0.05)


def test_profiler_trace_can_be_drawn_and_compared(run: tuple[Path, list[list[float]]], tmp_path: Path):
    folder, _ = run
    assert ringlab.animate(f"{folder}/", tmp_path / "run.png").title == "training/profiled"
    trace = read_run(folder)
    trace.write(tmp_path / "run.trace.json")
    assert read_run(tmp_path / "run.trace.json") == trace
    viz.write_perfetto([viz_traces.training(RANKS), trace], tmp_path / "both.perfetto.json")
    events = json.loads((tmp_path / "both.perfetto.json").read_text())["traceEvents"]
    names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert {"measured, rank 0", "measured, rank 1"} < set(names)


def test_single_profile_file_is_read(run: tuple[Path, list[list[float]]], tmp_path: Path):
    packed = next(run[0].iterdir())
    plain = tmp_path / "rank.json"
    plain.write_bytes(gzip.decompress(packed.read_bytes()))
    assert read_run(plain) == read_run(packed)
    with pytest.raises(InputError, match="duplicate profile of rank"):
        read_profile([packed, plain])


def slice_(name: str, begin: float, lasting: float, category: str = "user_annotation") -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": begin, "dur": lasting}


def read(tmp_path: Path, content: Any) -> Trace:
    (tmp_path / "a.json").write_text(json.dumps(content))
    return read_profile(tmp_path / "a.json")


def test_profiler_steps_and_gpu_syncs_are_read(tmp_path: Path):
    events = [slice_(f"ProfilerStep#{number + 4}", 100 * number, 90) for number in range(3)]
    events += [slice_("nccl:all_reduce", 110, 2), slice_("nccl:all_reduce", 130, 20, "gpu_user_annotation")]
    events += [slice_("ncclDevKernel_AllReduce", 130, 20, "kernel"), slice_("Optimizer.step#SGD.step", 250, 10)]
    spans = list(read(tmp_path, {"traceEvents": events, "distributedInfo": {"rank": 3, "world_size": 8}}).spans)
    figures = [(span.rank, span.name, span.step, round(span.end * 1e6)) for span in spans]
    assert figures == [(3, "sync", 1, 20), (3, "optimizer", 2, 130)]


@pytest.mark.parametrize("since", [1_700_000_000_000_000, 1_700_000_000_000_000.25, 2.9e15])
def test_profiler_times_since_1970_are_converted_to_trace_times(since: float, tmp_path: Path):
    """Before torch 2.4, `ts` counts microseconds from 1970, and baseTimeNanoseconds does not exist."""
    events = [slice_("load", since, 4), slice_("Optimizer.step#SGD.step", since + 8, 2)]
    figures = [
        (span.name, round(span.begin * 1e6), round(span.end * 1e6))
        for span in read(tmp_path, {"traceEvents": events}).spans
    ]
    assert figures == [("load", 0, 4), ("optimizer", 8, 10)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "it has no list of traceEvents"),
        ({"traceEvents": [3]}, "traceEvents.0 must be an object, not 3"),
        ({"traceEvents": [slice_("x", 0, 1) | {"ts": "now"}]}, "traceEvents.0.ts must be a number"),
        ({"traceEvents": [slice_("x", 0, -1)]}, "traceEvents.0.dur must not be negative, not -1"),
        ({"traceEvents": [slice_("x", 0, 1) | {"name": 3}]}, "traceEvents.0: name and cat must be strings"),
        ({"traceEvents": [], "baseTimeNanoseconds": "0"}, "baseTimeNanoseconds must be a non-negative integer, not"),
        ({"traceEvents": [], "distributedInfo": {"rank": 2, "world_size": 2}}, "65536 must hold, not rank 2 of 2"),
        ({"traceEvents": [], "distributedInfo": [1]}, "distributedInfo must be an object, not [1]"),
    ],
)
def test_invalid_profile_is_rejected(tmp_path: Path, content: Any, message: str):
    with pytest.raises(InputError, match=f"a.json: .*{re.escape(message)}"):
        read(tmp_path, content)


def test_oversized_or_truncated_profile_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(FileBytes, "PROFILER", 2000)
    (tmp_path / "bomb.json.gz").write_bytes(gzip.compress(bytes(1 << 20)))
    with pytest.raises(InputError, match="more than 2,000 bytes"):
        read_profile(tmp_path / "bomb.json.gz")
    (tmp_path / "cut.json.gz").write_bytes(gzip.compress(b'{"traceEvents": []}')[:-9])
    with pytest.raises(InputError, match="incomplete, or contains"):
        read_profile(tmp_path / "cut.json.gz")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="contains no profiles"):
        read_profile(tmp_path / "empty")
