"""``ringlab replay``: its answer, its files, and its errors."""

import json
from pathlib import Path

import pytest
from command_line import Ringlab

from collectives.errors import InputError
from collectives.records.trace import read_trace
from replay.recording import SourceLine
from replay.recording_builder import RecordedCollective, RecordingBuilder
from ringlab.commands.predicting.replay import ReplayOptions, replay_file
from scenarios.networks import read_network
from simcomm.nccl.clusters import NcclCluster


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    """Write a recording of three steps on eight ranks with two buckets; rank 3 computes twice as long."""
    builder = RecordingBuilder("train.py", 8)
    for rank in range(8):
        for step in range(3):
            builder.begin(rank, "step", step)
            calls = []
            for bucket in range(2):
                collective = RecordedCollective("all_reduce", tuple(range(8)), 1 << 16)
                location = SourceLine("train.py", 40, "loss.backward()")
                calls.append(builder.collective(rank, (step, bucket), collective, line="world", location=location))
                builder.post(rank, calls[-1], seconds=2e-3 if rank == 3 else 1e-3)
            for call in calls:
                builder.wait(rank, call)
            builder.end(rank, "step", step, seconds=5e-4)
    builder.recording().write(tmp_path / "run.json")
    return tmp_path / "run.json"


def test_replay_command_prints_the_answer_and_writes_files(run_file: Path, tmp_path: Path, ringlab: Ringlab) -> None:
    files = [tmp_path / name for name in ("run.html", "run.trace.json", "answer.json")]
    what_ifs = ["--what-if", "all_reduce=naive", "--what-if", "cluster.link.8.bandwidth='1 Gbit/s'"]
    files_to = ["--plot", files[0], "--trace", files[1], "--json", files[2]]
    done = ringlab("replay", run_file, "--on", "two-racks", *what_ifs, *files_to)
    assert done.status == 0, done.err
    for words in ("train.py: 48 calls of 8 ranks, recorded on virtual", "train.py:40", "is the bottleneck"):
        assert words in done.out
    answer = json.loads(files[2].read_text())
    as_recorded, (naive, wider) = answer["own"], answer["what_ifs"]
    assert wider["elapsed_s"] < as_recorded["elapsed_s"] < naive["elapsed_s"]
    assert answer["collectives"] == [
        {"what": "all_reduce", "number": 6, "bytes": 6 << 18, "wire_bytes": 6 * 14 << 18}
        | {"waited_s": pytest.approx(answer["lines"][0]["mean_s"])}
    ]
    assert [(mark["name"], mark["number"]) for mark in answer["marks"]] == [("step", 24)]
    trace = read_trace(files[1])
    assert (len(trace.messages), trace.elapsed) == (as_recorded["messages"], pytest.approx(as_recorded["elapsed_s"]))
    assert files[0].stat().st_size > 10_000
    done = ringlab("replay", run_file, "--ranks", 64, "--on", "two-racks")
    assert done.status == 0 and "each host 8 times" in done.out and "of 64 ranks" in done.out, done.err


def test_replay_compares_with_the_measured_time(tmp_path: Path) -> None:
    builder = RecordingBuilder("two.py", 2, where="gloo")
    for rank in range(2):
        call = builder.collective(rank, 0, RecordedCollective("all_reduce", (0, 1), 250_000))
        builder.post(rank, call, seconds=1.0)
        builder.wait(rank, call, took=0.5)
    builder.recording().write(tmp_path / "run.json")
    answer = replay_file(
        tmp_path / "run.json", ReplayOptions(on="topology=star hosts=2 bandwidth='8 Gbit/s' latency=0us")
    )
    assert answer.measured_s == 1.5
    assert "took 1.5 s; the replay is off by -33%" in " ".join(part for part in answer.show() if isinstance(part, str))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (ReplayOptions(on="topology=ring hosts=4 bandwidth='1 Gbit/s' latency=0us"), "8 ranks do not fit"),
        (ReplayOptions(on="topology=stra hosts=8"), "stra"),
        (ReplayOptions(on="two-racks", algorithm=["all_reduce"]), "expected COLLECTIVE=NAME"),
        (ReplayOptions(on="two-racks", algorithm=["all_reduce=rign"]), "unknown algorithm"),
        (ReplayOptions(on="two-racks", what_if=["bandwidth='1 Gbit/s"]), "No closing quotation"),
        (ReplayOptions(on="two-racks", what_if=[""]), "--what-if must not be empty"),
    ],
)
def test_replay_command_rejects_invalid_options(run_file: Path, options: ReplayOptions, message: str) -> None:
    with pytest.raises(InputError, match=message):
        replay_file(run_file, options)


def test_read_network_provides_a_host_or_gpu_for_each_rank(tmp_path: Path) -> None:
    network = read_network("star8", 4, ["faults.rank=[{rank = 1, slowdown = 2}]"])
    assert (network.cluster.world_size, network.faults.ranks[0].slowdown) == (4, 2)
    assert read_network("this-machine", 3).cluster.world_size == 3
    for name, ranks, size in (("dgx-h100", 4, (1, 4)), ("dgx-h100", 12, (2, 6)), ("gb200-nvl72", 6, (2, 3))):
        cluster = read_network(name, ranks).cluster
        assert isinstance(cluster, NcclCluster)
        assert (cluster.world_size, (cluster.system.nodes, cluster.system.gpus)) == (ranks, size)
    with pytest.raises(InputError, match=r"13 ranks .* do not fill all its hosts evenly; use a multiple of 8"):
        read_network("dgx-h100", 13)
    graph = {"directed": False, "multigraph": False, "graph": {}, "nodes": [{"id": name} for name in ("h0", "h1", "s")]}
    graph["edges"] = [{"source": f"h{n}", "target": "s", "bandwidth": 1.25e8, "latency": 5e-6} for n in (0, 1)]
    (tmp_path / "net.json").write_text(json.dumps(graph))
    assert read_network(str(tmp_path / "net.json")).cluster.world_size == 2
