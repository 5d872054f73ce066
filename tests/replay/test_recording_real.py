"""``ringlab record`` records programs on real ranks without changing their results."""

import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from simulated_gpu import SimulatedGpu, Stream
from warm_ranks import run_ranks

import simcomm
from collectives.errors import RunFailed
from replay.capture.rank_log import CallLog, join_logs, read_logs
from replay.capture.recorder import OPERATORS, CallRecorder
from replay.recording import CallKind, Did, Recording, read_recording
from replay.simulation.figures import describe_stuck
from replay.simulation.replay import replay
from ringlab.commands.measuring.record import record_program

PROGRAM = Path(__file__).parent / "recorded_program.py"


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """Return the recording of the program, whose ranks print the same results with and without being recorded."""
    file, folder = tmp_path_factory.mktemp("recorded") / "run.json", tmp_path_factory.mktemp("printed")
    with_it = run_ranks(2, folder, "-m", "ringlab", "record", "-o", file, PROGRAM, "--ranks", 7)
    assert [status for status, _, _ in with_it] == [0, 0], with_it
    assert f"of 2 ranks; replay with `ringlab replay {file}" in with_it[0][2]
    without = run_ranks(2, folder, PROGRAM, "--ranks", 7)
    assert [path.name for path in file.parent.iterdir()] == ["run.json"]
    results = [
        sorted(line for _, out, _ in ranks for line in out.splitlines() if "RESULT" in line)
        for ranks in (with_it, without)
    ]
    assert len(results[0]) == 2 and results[0] == results[1]
    return read_recording(file)


def test_recording_contains_the_calls_of_the_program(recording: Recording) -> None:
    assert (recording.world_size, recording.where) == (2, "gloo")
    assert recording.title == "recorded_program.py --ranks 7"
    calls = [call for call in recording.calls if call.rank == 0 and call.kind == CallKind.COLLECTIVE]
    kinds = Counter(recording.verbs[call.verb] for call in calls)
    assert kinds["all_gather"] >= 4  # of the sharded model, in two steps; sizes and bytes of objects
    assert (kinds["reduce_scatter"], kinds["barrier"]) == (2, 1)
    assert kinds["broadcast"] >= 1  # of DistributedDataParallel
    by = {(recording.verbs[call.verb], recording.ops[call.op]) for call in calls}
    assert {("reduce", "max"), ("reduce_scatter", "mean"), ("all_reduce", "sum")} <= by
    assert sum(recording.verbs[call.verb] == "all_reduce" and call.elements == 1000 for call in calls) == 2
    assert {recording.location(number).file for number in range(len(recording.calls))} == {"recorded_program.py"}
    assert any("begun = dist.all_reduce" in location.text for location in recording.locations)
    sends = [call for call in recording.calls if call.kind == CallKind.SEND and call.tag == 5]
    assert [(call.rank, call.peer, call.nbytes) for call in sends] == [(0, 1, 4000)]
    for rate in ("100 Gbit/s", "10 Mbit/s"):
        run = replay(recording, simcomm.star(2, rate, "10 us"))
        assert describe_stuck(run) == [] and run.elapsed >= recording.computed().max() * 0.99


def test_recording_separates_computing_from_waiting(recording: Recording) -> None:
    number = next(n for n, call in enumerate(recording.calls) if call.elements == 1000 and call.rank == 1)
    waits = [e for e in recording.entries if e.did == Did.WAIT and e.number == number]
    assert 0.2 <= waits[0].seconds < 2.0  # it slept meanwhile
    assert (recording.took() >= recording.computed()).all()


@pytest.mark.parametrize("fault", ["raise ValueError('as it stands')", "os.kill(os.getpid(), 9)"])
def test_recorded_rank_reports_its_failure_or_a_lost_peer(fault: str, tmp_path: Path) -> None:
    script = tmp_path / "fails.py"
    script.write_text(
        "import os, torch, torch.distributed as d\nd.init_process_group('gloo')\n"
        f"if d.get_rank() == 1: {fault}\nd.all_reduce(torch.ones(1))\n"
    )
    (_, _, first), (_, _, second) = run_ranks(
        2, tmp_path, "-m", "ringlab", "record", "-o", tmp_path / "run.json", script
    )
    doing = "(line 4 of fails.py) (status: running fails.py)\n"
    assert first.startswith("ringlab: rank 0 lost another rank: RuntimeError: ") and first.endswith(doing), first
    assert not (tmp_path / "run.json").exists()
    message = f"ringlab: rank 1 failed with ValueError: as it stands {doing.replace('line 4', 'line 3')}"
    assert second == (message if "raise" in fault else "")


class GpuTensor(torch.Tensor):
    is_cuda, device = True, torch.device("cuda", 3)


class BarrierTensor(GpuTensor):
    """The tensor of torch's barrier, on the GPU that was current before the script chose one."""

    device = torch.device("cuda", 0)


@pytest.mark.parametrize("backend", ["nccl", "gloo"])
def test_recorder_times_gpu_calls_on_their_stream(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script passes no backend, and chooses its GPU after ``init_process_group``."""
    gpu = SimulatedGpu(monkeypatch)
    streams: list[torch.device | None] = []

    def current_stream(device: torch.device | None = None) -> Stream:
        streams.append(device)
        return gpu.compute

    monkeypatch.setattr(torch.cuda, "current_stream", current_stream)
    monkeypatch.setattr(time, "perf_counter", lambda: gpu.host)
    group = SimpleNamespace(group_name="all", _get_backend=lambda device: SimpleNamespace(name=lambda: backend))
    monkeypatch.setattr(torch.distributed.ProcessGroup, "unbox", lambda boxed: boxed)
    monkeypatch.setattr("replay.capture.recorder.ranks_of", lambda group: [0, 1])
    recorder = CallRecorder("script", 0, 2)
    recorder.begin()
    gpu.host += 5.0  # of loading

    def all_reduce(tensor: torch.Tensor) -> None:
        named = {"tensors": [tensor], "process_group": group, "async_op": False}
        recorder._on_call(OPERATORS["allreduce_"], named, lambda: gpu.compute.queue(1.0))

    barrier = {"tensor": torch.ones(1).as_subclass(BarrierTensor), "process_group": group}
    recorder._on_call(OPERATORS["barrier"], barrier, lambda: None)
    gpu.compute.queue(2.0)
    all_reduce(torch.ones(4).as_subclass(GpuTensor))
    gpu.compute.queue(3.0)
    all_reduce(torch.ones(4).as_subclass(GpuTensor))
    log = recorder.finish()
    assert [entry.seconds for entry in log.entries] == pytest.approx([5.0, 2.0, 3.0])
    assert [entry.took for entry in log.entries] == pytest.approx([0.0, 1.0, 1.0])
    assert {*streams} == {torch.device("cuda", 3)} and log.backend == backend


@pytest.mark.slow
def test_record_prefixes_each_output_line_with_its_rank(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "prints.py"
    script.write_text("import torch.distributed as d\nd.init_process_group('gloo')\nfor _ in range(9): print('mine')\n")
    record_program([str(script)], 2, tmp_path / "run.json", 120.0)
    lines = capfd.readouterr().out.splitlines()
    assert Counter(lines) == {"[rank0]: mine": 9, "[rank1]: mine": 9}


def test_read_logs_names_a_rank_without_a_log(tmp_path: Path) -> None:
    logs = [CallLog(rank, 2, "one.py", "gloo") for rank in range(2)]
    logs[0].write(tmp_path)
    with pytest.raises(RunFailed, match="no log of rank 1"):
        read_logs(tmp_path, 2, timeout=0.1)
    assert len(join_logs(logs).calls) == 0
