"""The file for Perfetto: slices nest, arrows bind, what is left out is said, and its numbers are those of the Trace."""

import json
from collections import defaultdict
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import viz_traces
from hypothesis import given
from hypothesis import strategies as st

import ringlab
import simcomm
import viz
from collectives import InputError, Message, Trace, Transport, find_algorithm
from collectives.records.trace import ProgramFailure
from collectives.training.workload import ComputePhases, Training
from simcomm.model.faults import Faults, LinkFault, RankFault
from viz import perfetto
from viz.perfetto import assign_tracks, write_perfetto

STAR = simcomm.star(6, "10 Gbit/s", "5 us", Transport("test", overhead=3e-6, goodput=0.9, gamma=1e-10))
FAULT_CASES = {
    "thin": Faults(links=(LinkFault(("h2", "s0"), 0.2),)),
    "down": Faults(links=(LinkFault(("h2", "s0"), 0.0, at=1e-5),)),
    "stops": Faults((RankFault(1, fails_at=3e-5),)),
}
CASES = ["all_reduce/double_tree", "all_to_all/direct", "thin", "down", "stops", "training", "this machine"]


@cache
def made(case: str) -> Trace:
    if case == "training":
        job = Training(find_algorithm("all_reduce/ring"), compute=ComputePhases(0.1, 0.2, 0.05))
        return simcomm.train(job, STAR)
    if case == "this machine":
        return viz_traces.this_machine(4)
    name = "all_reduce/ring" if case in FAULT_CASES else case
    return simcomm.run(name, STAR, 12_000, faults=FAULT_CASES.get(case, Faults()))


def export(traces: Trace | list[Trace], folder: Path) -> dict[str, Any]:
    write_perfetto(traces, folder / "run.perfetto.json")
    content = json.loads((folder / "run.perfetto.json").read_text(), parse_constant=pytest.fail)
    assert isinstance(content, dict)
    return content


def slices(content: dict[str, Any]) -> dict[tuple[int, int], list[dict[str, Any]]]:
    """Return the slices of each track, in nanoseconds."""
    tracks = defaultdict(list)
    for event in content["traceEvents"]:
        if event["ph"] == "X":
            begin, lasting = round(event["ts"] * 1000), round(event["dur"] * 1000)
            tracks[event["pid"], event["tid"]].append({**event, "begin": begin, "end": begin + lasting})
    return tracks


@pytest.mark.parametrize("case", CASES)
def test_perfetto_slices_nest_and_arrows_match_messages(case: str, tmp_path: Path):
    trace = made(case)
    content = export(trace, tmp_path)
    by_track = slices(content)
    for track in by_track.values():
        open_until: list[int] = []
        for span in sorted(track, key=lambda event: (event["begin"], -event["end"])):
            open_until = [end for end in open_until if end > span["begin"]]
            assert all(span["end"] <= end for end in open_until), "a slice ends after the slice that contains its begin"
            open_until.append(span["end"])
    arrows: dict[int, dict[str, Any]] = defaultdict(dict)
    for event in content["traceEvents"]:
        if event["ph"] in "sf":
            at, track = round(event["ts"] * 1000), by_track[event["pid"], event["tid"]]
            inside = [event for event in track if event["begin"] <= at < event["end"]]
            assert event["ph"] not in arrows[event["id"]] and inside
            arrows[event["id"]][event["ph"]] = min(inside, key=lambda event: event["end"] - event["begin"])
            assert event["ph"] == "s" or event["bp"] == "e"
    assert len(arrows) == len(trace.messages)
    for ends in arrows.values():
        assert (ends["s"]["cat"], ends["f"]["cat"]) == ("send", "receive")
        assert ends["s"]["args"] == ends["f"]["args"]
        assert ends["s"]["pid"] != ends["f"]["pid"]


NEEDED = {  # keys by phase, as the Trace Event Format has them, and the type of each
    "X": {"name": str, "cat": str, "ts": float, "dur": float, "pid": int, "tid": int},
    "M": {"name": str, "pid": int, "tid": int, "args": dict},
    "C": {"name": str, "ts": float, "pid": int, "args": dict},
    "s": {"name": str, "cat": str, "id": int, "ts": float, "pid": int, "tid": int},
    "f": {"name": str, "cat": str, "id": int, "ts": float, "pid": int, "tid": int, "bp": str},
    "i": {"name": str, "cat": str, "ts": float, "pid": int, "tid": int, "s": str},
}


@pytest.mark.parametrize("case", CASES)
def test_perfetto_events_follow_the_trace_event_format(case: str, tmp_path: Path):
    """Perfetto counts missing keys, wrong types, unknown names and times out of order as errors."""
    content = export(made(case), tmp_path)
    assert content.keys() == {"traceEvents", "displayTimeUnit", "otherData"}
    named, counted, starts, ends = set(), dict[str, float](), dict[int, float](), dict[int, float]()
    for event in content["traceEvents"]:
        needed = NEEDED[event["ph"]]
        assert needed.keys() | {"ph"} <= event.keys() <= needed.keys() | {"ph", "args"}
        for key, kind in needed.items():
            assert isinstance(event[key], (int, float) if kind is float else kind), (key, event)
        assert event.get("ts", 0.0) >= 0
        assert event.get("dur", 0.0) >= 0
        if event["ph"] == "M":
            assert event["name"] in {"process_name", "process_sort_index", "thread_name", "thread_sort_index"}
            named.add((event["name"], event["pid"], event["tid"]))
        elif event["ph"] == "C":
            assert event["ts"] > counted.get(event["name"], -1.0), "a counter has one value at a time, in order"
            counted[event["name"]] = event["ts"]
            assert all(isinstance(value, float) and value >= 0 for value in event["args"].values())
        elif event["ph"] in "sf":
            (starts if event["ph"] == "s" else ends)[event["id"]] = event["ts"]
    for event in content["traceEvents"]:
        if event["ph"] in "Xsf":
            assert ("process_name", event["pid"], event["pid"]) in named
            assert ("thread_name", event["pid"], event["tid"]) in named
    assert starts.keys() == ends.keys()
    assert all(starts[number] < ends[number] for number in starts), "an arrow goes forward in time"


@pytest.mark.parametrize("case", CASES)
def test_perfetto_file_has_the_bytes_and_times_of_the_trace(case: str, tmp_path: Path):
    trace = made(case)
    content = export(trace, tmp_path)
    names = {event["pid"]: event["args"]["name"] for event in content["traceEvents"] if event["name"] == "process_name"}
    assert [f"rank {rank}" for rank in range(trace.world_size)] == list(names.values())[: trace.world_size]
    sent: dict[str, int] = defaultdict(int)
    seconds: dict[str, float] = defaultdict(float)
    for (pid, _), track in slices(content).items():
        for event in track:
            sent[names[pid]] += event["args"]["bytes"] if event["cat"] == "send" else 0
            seconds[event["cat"]] += (event["end"] - event["begin"]) / 1e9
    assert [sent[f"rank {rank}"] for rank in range(trace.world_size)] == trace.bytes_sent()
    waited = sum(2 * message.begin - message.src_posted - message.dst_posted for message in trace.messages)
    assert seconds["wait"] == pytest.approx(waited, abs=2e-9 * len(trace.messages))
    for name in trace.spans.names:
        spans = trace.spans.select(trace.spans.named(name))
        assert seconds[name] == pytest.approx(float((spans.end - spans.begin).sum()), abs=1e-9 * len(spans))


def test_perfetto_link_counters_add_up_to_the_bytes_of_each_link(tmp_path: Path):
    trace = simcomm.run("all_reduce/ring", STAR, 1_200_000)
    loads = defaultdict(list)
    for event in export(trace, tmp_path)["traceEvents"]:
        if event["ph"] == "C":
            loads[event["name"]].append((event["ts"] / 1e6, event["args"]["Gbit/s"] * 1e9 / 8))
    assert len(loads) == 12
    for link in trace.links:
        samples = loads[f"{link.src} to {link.dst}"]
        carried = sum(load * (after - time) for (time, load), (after, _) in pairwise(samples))
        assert carried == pytest.approx(link.nbytes, rel=1e-3)


def test_perfetto_file_notes_omitted_arrows_and_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    instant = Trace("x", "predicted", 2, 1.0, [Message(0, 1, 0, 0, 8, 0.5, 0.5), Message(0, 1, 1, 0, 8, 0.5, 1.0)])
    content = export([instant, viz_traces.training(3)], tmp_path)
    assert [event["ph"] for event in content["traceEvents"]].count("s") == 1
    assert "without 1 of 2 arrows" in content["otherData"]["notes"][0]
    names = {event["args"]["name"] for event in content["traceEvents"] if event["name"] == "process_name"}
    assert {"predicted, rank 0", "predicted, rank 1", "measured, rank 2"} <= names
    for name, most in (("MOST_ARROWS", 7), ("MOST_MESSAGES", 20), ("COUNTERS", 3)):
        monkeypatch.setattr(perfetto, name, most)
    content = export(simcomm.run("all_reduce/ring", STAR, 12_000), tmp_path)
    phases = [event["ph"] for event in content["traceEvents"]]
    assert (phases.count("s"), phases.count("f")) == (7, 7)
    note = "without 40 of 60 messages  ·  without 13 of 20 arrows  ·  without 9 of 12 links"
    assert note in content["otherData"]["notes"][0]
    assert any(note in event["args"].get("name", "") for event in content["traceEvents"] if event["ph"] == "M")


def test_perfetto_file_shows_unfinished_and_failed_ranks(tmp_path: Path):
    trace = simcomm.run("all_reduce/ring", STAR, 12_000, faults=FAULT_CASES["stops"])
    trace.failure = ProgramFailure(2, 1, "my.py:3", "it sends to itself")
    events = export(trace, tmp_path)["traceEvents"]
    stuck = [event for event in events if event.get("cat") == "unfinished"]
    assert len(stuck) == len(trace.unfinished) > 0
    assert all(event["ts"] + event["dur"] == pytest.approx(trace.elapsed * 1e6, abs=1e-3) for event in stuck)
    assert [event["name"] for event in events if event["ph"] == "i"] == ["failed", "it sends to itself"]


def test_perfetto_file_requires_its_suffix_and_a_non_empty_trace(tmp_path: Path):
    assert ringlab.animate("star8", tmp_path / "ring.perfetto.json", "ring", "1 KiB").title == "all_reduce/ring"
    assert json.loads((tmp_path / "ring.perfetto.json").read_text())["displayTimeUnit"] == "ns"
    with pytest.raises(InputError, match=r"a trace for Perfetto is written as \.perfetto\.json"):
        viz.write_perfetto(viz_traces.ring(3), tmp_path / "ring.json")
    with pytest.raises(InputError, match="nothing to draw"):
        viz.write_perfetto(Trace("all_reduce/ring", "predicted", 2, 0.0), tmp_path / "none.perfetto.json")


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10)), max_size=40))
def test_perfetto_uses_the_fewest_tracks_without_overlap(drawn: list[tuple[int, int]]):
    intervals = [(begin, begin + lasting) for begin, lasting in drawn]
    track = assign_tracks(intervals)
    longest = [(begin, max(end, begin + 1)) for begin, end in intervals]
    for index, (begin, end) in enumerate(longest):
        for other in range(index):
            if track[index] == track[other]:
                assert end <= longest[other][0] or longest[other][1] <= begin
    most = max((sum(begin <= time < end for begin, end in longest) for time in range(42)), default=0)
    assert len(set(track)) == most
