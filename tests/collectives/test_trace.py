"""Check traces: files, rejected content, memory, and the figures of a trace."""

import base64
import json
import re
import tracemalloc
import zlib
from collections.abc import Callable
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest

import simcomm
import viz
from collectives import CollectiveCall, InputError, Message, Span, Trace, find_algorithm
from collectives.records.calibration import read_calibration
from collectives.records.trace import LinkRate, ProgramFailure, TracedLink, Unfinished, read_trace
from collectives.training.workload import Training
from ringlab.shared.figures import collective_figures, training_figures
from simcomm.compiled.engine import one_by_one
from simcomm.compiled.planning.engine_input import EngineInput
from simcomm.compiled.traces import make_trace
from simcomm.model.faults import Faults
from simcomm.schedules import unverified_schedule
from viz.report import ReportParts

ZEROS = base64.b64encode(zlib.compress(bytes(1 << 20))).decode()  # many times the allowed size
ROUTES = {"names": ["a"], "count": 1, "nodes": 2, "first": [0, 2], "node": [0, 0]}
ONES = base64.b64encode(zlib.compress(b"\xff" * 16)).decode()


@pytest.fixture
def trace() -> Trace:
    return Trace(
        "all_reduce/ring",
        "predicted",
        2,
        3e-3,
        messages=[Message(0, 1, 0, 1, 512, 0.0, 1e-3, ("h0", "s0", "h1")), Message(1, 0, 0, 0, 512, 0.0, 1e-3)],
        spans=[Span(0, "reduce", 0, 1e-3, 1.5e-3), Span(1, "reduce", 0, 1e-3, 1e-3)],
        links=[
            TracedLink("h0", "s0", 1.25e9, 5e-6, 512.0, (LinkRate(0.0, 1.25e9, 1.25e9), LinkRate(1e-3, 1e9, 5e8))),
            TracedLink("s0", "h1", inf, 0.0, 512.0),
        ],
        nodes=["h0", "h1", "s0"],
        hosts=["h0", "h1"],
        facts={"nbytes": 1024.0, "time_min_s": 3e-3},
        algorithm="all_reduce/ring",
        chunks=2,
    )


def test_path_argument_of_a_wrong_type_is_rejected(trace: Trace) -> None:
    figure, parts = viz.space_time_figure(trace), ReportParts()
    calls: list[Callable[[Any], object]] = [
        trace.write, read_trace, read_calibration, simcomm.read_cluster, lambda path: viz.draw(trace, path),
        lambda path: viz.animate(trace, path), lambda path: viz.write_figure(figure, path),
        lambda path: viz.write_report({"kind": "prediction"}, parts, path),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(InputError, match="path must be the name of a file or directory, not 3"):
            call(3)


def written(trace: Trace, folder: Path) -> dict[str, Any]:
    trace.write(folder / "a.trace.json")
    content = json.loads((folder / "a.trace.json").read_text(), parse_constant=pytest.fail)
    assert isinstance(content, dict)
    return content


def test_trace_round_trips_through_a_file(trace: Trace, tmp_path: Path) -> None:
    assert trace.bytes_sent() == [512, 512]
    unfinished = replace(trace, failed={1: 2e-3}, unfinished=[Unfinished(0, 1, True, 1, 0, 2e-3, False, 1)])
    many_routes = simcomm.run("all_to_all/direct", simcomm.star(50, "10 Gbit/s", "5 us"), 50 * 64)
    failed = replace(trace, failure=ProgramFailure(1, 0, "my.py:9", "deadlock"))
    for original in (trace, unfinished, failed, many_routes):
        original.write(tmp_path / "new folder" / "a.trace.json")
        again = read_trace(tmp_path / "new folder" / "a.trace.json")
        assert again == original and again.messages[0] == original.messages[0]
        assert again.is_complete == (original in (trace, many_routes))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a trace: it is not JSON"),
        (b"[" * 100_000, "not a trace: it is not JSON"),
        (b"[1, 2]", r"not a trace of schema version 3 \(found None\)"),
        (
            b'{"schema_version": 1, "way": ""}',
            r"not a trace of schema version 3 \(found 1\); another version of Ringlab wrote it: make it again",
        ),
        (b'{"schema_version": 3}', "not a trace: title: Field required"),
    ],
)
def test_invalid_trace_file_is_rejected(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "garbage.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=f"garbage.json: {message}"):
        read_trace(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "imagined"}, "kind: Input should be 'predicted' or 'measured'"),
        ({"worldsize": 2}, "worldsize: Unexpected keyword argument"),
        ({"failure": [2, 0, "", "no such rank"]}, "failure: rank 2 does not exist; there are 2 ranks"),
        ({"hosts": ["h0"]}, "hosts must have 2 entries, one per rank, not 1"),
    ],
)
def test_invalid_trace_fields_are_rejected(trace: Trace, tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(written(trace, tmp_path) | changes))
    with pytest.raises(InputError, match=f"changed.json: not a trace: {message}"):
        read_trace(path)


@pytest.mark.parametrize(
    ("table", "column", "values", "message"),
    [
        ("messages", "dst", [2, 0], "messages.0 goes from rank 0 to rank 2 of 2"),
        ("messages", "dst", [1], "messages: dst must have 2 entries, not 1"),
        ("messages", "reduces", [0, True], "messages: reduces.0 must be true or false, not 0"),
        ("messages", "src_posted", [2.0, 0.0], "messages.0 ends at 0.001 but begins at 2.0"),
        ("messages", "src_posted", ["nan", 0.0], "src_posted.0 must be a finite number, not 'nan'"),
        ("messages", "route", [2, 0], "messages: columns: route.0 must be an index of 2 routes, not 2"),
        ("messages", "chunk", {"all": -1}, "messages: chunk.0 must be a non-negative integer, not -1"),
        ("messages", "chunk", {"type": "O", "deflated": ""}, "messages: chunk.type must be one of u1, u2, u4, u8"),
        ("messages", "chunk", {"type": "u2", "deflated": ZEROS}, "chunk.deflated must have 4 bytes for 2 rows"),
        ("messages", "chunk", {"type": "u8", "deflated": ONES}, "chunk.deflated must contain only numbers below 2^63"),
        ("spans", "rank", [2, 1], "spans.0: rank 2 does not exist; there are 2 ranks"),
        ("spans", "begin", [1.0, 0.0], "spans.0 ends at 0.0015 but begins at 1.0"),
        ("messages", "", {"rows": 10**12}, "rows must be an integer from 0 to 4000000, not 1000000000000"),
        ("messages", "", {"more": 1}, "messages: must be a table with the keys rows, columns, routes, not ['rows', "),
        ("messages", "", {"routes": ROUTES | {"first": [0, 1]}}, "routes.first must increase"),
    ],
)
def test_invalid_trace_columns_are_rejected(
    trace: Trace, tmp_path: Path, table: str, column: str, values: Any, message: str
) -> None:
    path, content = tmp_path / "changed.json", written(trace, tmp_path)
    content[table] |= values if not column else {"columns": content[table]["columns"] | {column: values}}
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match=f"changed.json: not a trace: .*{re.escape(message)}"):
        read_trace(path)


def test_making_and_reading_a_trace_need_little_extra_memory(tmp_path: Path) -> None:
    file, ring = tmp_path / "ring.trace.json", find_algorithm("all_reduce/ring")
    star = simcomm.star(256, "10 Gbit/s", "5 us")
    call, schedule, faults = CollectiveCall(ring, 1 << 20), unverified_schedule(ring, 256), Faults()
    inputs = EngineInput(call, schedule, star, star.transport, faults).with_table()
    timing = one_by_one(inputs, messages=True)
    make_trace(inputs, timing, {}).write(file)
    read_trace(file)
    for act in (lambda: make_trace(inputs, timing, {}), lambda: read_trace(file)):
        tracemalloc.start()
        trace = act()
        buffers, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert len(trace.messages) == 2 * 256 * 255
        assert buffers < most < 50 * len(trace.messages)  # 100 MB for two million


JOB = Training(find_algorithm("all_reduce/ring"), batch_size=10)


def test_bandwidths_are_defined_as_in_nccl_tests():
    facts = {"nbytes": 8e9, "time_min_s": 1.9, "time_max_s": 2.5}
    entry = collective_figures(Trace("all_reduce/ring", "measured", 4, 2.0, facts=facts))
    assert entry.to_dict() == {
        "collective": "all_reduce", "algorithm": "ring", "world_size": 4, "bytes": 8_000_000_000, "time_s": 2.0,
        "time_min_s": 1.9, "time_max_s": 2.5, "algbw_GBps": 4.0, "busbw_GBps": 6.0,
    }  # fmt: skip


def spans(step: int, rank: int, *seconds: float) -> list[Span]:
    names, at, events = ("forward", "backward", "sync", "optimizer"), 10.0 * step, []
    for name, length in zip(names, seconds, strict=True):
        events.append(Span(rank, name, step, at, at + length))
        at += length
    return events


def test_mean_step_time_excludes_warm_up_steps():
    events = [*spans(0, 0, 9, 9, 9, 9), *spans(0, 1, 9, 9, 9, 9)]
    for step in (1, 2, 3):
        events += spans(step, 0, 1, 2, 2, 1) + spans(step, 1, 1, 2, 2, 2)
    facts = {"batch_size": 10.0, "single_rank_step_s": 3.25, "warmup_steps": 1.0, "test_accuracy": 0.9}
    entry = training_figures(Trace("training/ring", "measured", 2, 40.0, spans=events, facts=facts), JOB)
    assert entry.step_s == 6.5
    assert (entry.forward_s, entry.backward_s, entry.sync_s, entry.optimizer_s) == (1.0, 2.0, 2.0, 1.5)
    assert entry.samples_per_s == pytest.approx(20 / 6.5)
    assert entry.scaling_efficiency == 0.5
    assert entry.test_accuracy == 0.9
    assert entry.examples_seen is None


def test_exposed_time_of_buckets_is_reported():
    events = []
    for rank, (full, backward, sync) in enumerate([(2.5, 3.0, 0.5), (2.0, 3.0, 0.0)]):
        events += spans(0, rank, 1, backward - 1, sync, 1)
        events += [Span(rank, "bucket 0", 0, 1.5, 2.0), Span(rank, "bucket 1", 0, full, backward)]
    facts = {"batch_size": 10.0, "single_rank_step_s": 3.5, "warmup_steps": 0.0}
    trace = Trace("training/ddp", "measured", 2, 9.0, spans=events, facts=facts)
    assert training_figures(trace, JOB).exposed_s == ((3.0 - 2.5 + 0.5) + (3.0 - 2.0)) / 2
    alone = Trace("training/ring", "measured", 1, 4.0, spans=spans(0, 0, 1, 1, 1, 1), facts=facts)
    assert training_figures(alone, JOB).exposed_s is None


def test_exposed_ddp_sync_is_the_extra_backward_time():
    facts = {"batch_size": 10.0, "single_rank_step_s": 3.5, "single_rank_backward_s": 1.5, "warmup_steps": 0.0}
    events = [span for rank in range(2) for span in spans(0, rank, 1, 2, 0, 1)]
    trace = Trace("training/ddp", "measured", 2, 9.0, spans=events, facts=facts)
    assert training_figures(trace, Training(None, batch_size=10)).exposed_s == 0.5
    assert training_figures(trace, JOB).exposed_s is None, "a sync behind backward has a phase of its own"
