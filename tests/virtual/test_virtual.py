"""Programs on virtual ranks: values and losses are correct, and times match ``simcomm.run`` and the replay."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from virtual_runs import VirtualRuns, star
from warm_ranks import run_ranks

import simcomm
from collectives.errors import InputError, RunFailed
from replay.simulation.figures import mark_figures
from replay.simulation.replay import replay
from scenarios.networks import read_network
from virtual.options import VirtualOptions
from virtual.process.programs import UserProgram
from virtual.ranks import sites

PROGRAMS = Path(__file__).parent / "virtual_programs"


@pytest.mark.parametrize("elements", [1 << 18, 1001, 3])
def test_collective_time_matches_simulation(virtual: VirtualRuns, elements: int) -> None:
    ran = virtual(PROGRAMS / "all_reduce.py", 8, str(elements), timing="live")
    values, seconds = zip(*(ran.lines(rank)[0].split() for rank in range(8)), strict=True)
    exact = simcomm.run("all_reduce/ring", star(8), nbytes=4 * elements).elapsed
    assert {*values} == {"36.0"}
    twice_read = exact + 2 * 5e-8  # the program reads the clock twice
    assert ran.outcome.jobs[0].elapsed == pytest.approx(twice_read, rel=1e-12)
    assert max(map(float, seconds)) == pytest.approx(exact + 5e-8, rel=1e-12)


def test_handwritten_ring_matches_library_ring(virtual: VirtualRuns) -> None:
    ran = virtual(PROGRAMS / "ring.py", 8, timing="live")
    assert all(ran.lines(rank) == ["True"] for rank in range(8))
    assert ran.outcome.jobs[0].elapsed == simcomm.run("all_reduce/ring", star(8), nbytes=1 << 20).elapsed


def test_recorded_and_live_timing_give_equal_values_and_calls(virtual: VirtualRuns) -> None:
    live = virtual(PROGRAMS / "ring.py", 4, timing="live")
    recorded = virtual(PROGRAMS / "ring.py", 4, timing="recorded")
    assert sorted(live.out.splitlines()) == sorted(recorded.out.splitlines())
    assert live.recording is not None and recorded.recording is not None
    assert len(live.recording.calls) == len(recorded.recording.calls) == 4 * 6 * 2
    assert live.trace is not None and recorded.trace is None and len(live.trace.messages) == 4 * 6


def test_all_collectives_match_gloo(virtual: VirtualRuns, tmp_path: Path) -> None:
    ran = virtual(PROGRAMS / "verbs.py", 3, timing="live")
    recorded = virtual(PROGRAMS / "verbs.py", 3, timing="recorded")
    lines = sorted(line for rank in range(3) for line in ran.lines(rank))
    assert lines == sorted(line for rank in range(3) for line in recorded.lines(rank))
    on_gloo = [line for _, out, _ in run_ranks(3, tmp_path, PROGRAMS / "verbs.py") for line in out.splitlines()]
    assert len(lines) > 140 and lines == sorted(on_gloo)
    assert ran.outcome.findings == ()


def test_each_group_of_spawned_processes_is_a_separate_job(virtual: VirtualRuns) -> None:
    ran = virtual(PROGRAMS / "spawning.py", 0)
    assert "all right" in ran.out, ran.err
    assert [len(job.ranks) for job in ran.outcome.jobs] == [1, 3, 2, 2, 2]
    (finding,) = ran.outcome.findings
    assert finding.kind == "early exit" and "spawning.py" in finding.text


def test_processes_of_multiprocess_test_cases_become_ranks(virtual: VirtualRuns) -> None:
    ran = virtual(PROGRAMS / "multi_process_tests.py", 0, timing="live")
    assert ran.err.strip().splitlines()[-1] == "FAILED (errors=1, skipped=1)", ran.err
    assert "Ran 3 tests" in ran.err and "Expected 3 but got 2.0" in ran.err
    assert [finding.kind for finding in ran.outcome.findings] == ["exception"]


def test_processes_of_continuous_test_cases_become_ranks(virtual: VirtualRuns) -> None:
    ran = virtual(PROGRAMS / "continuous_tests.py", 0, timing="live")
    assert ran.err.strip().splitlines()[-1] == "OK" and "Ran 2 tests" in ran.err, ran.err
    assert [len(job.ranks) for job in ran.outcome.jobs] == [1, 2]


def test_timeout_names_the_line_that_hangs(virtual: VirtualRuns, tmp_path: Path) -> None:
    (tmp_path / "stuck.py").write_text("import os\nos.read(os.pipe()[0], 1)\n")
    options = VirtualOptions(UserProgram(str(tmp_path / "stuck.py")), 2, star(2))
    with pytest.raises(RunFailed, match=r"did not end in 1 s; rank 0 is at stuck\.py:2  .*; pass a longer --timeout"):
        virtual.host.run(options, timeout=1.0)


def test_pythonpath_modules_are_per_rank(virtual: VirtualRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, name in (("program/space/inner", "deep"), ("elsewhere", "beside")):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / f"{name}.py").write_text("rank = None\n")
    (tmp_path / "program" / "main.py").write_text(
        "import os, sys\nsys.path.insert(0, os.environ['PYTHONPATH'])\nimport torch.distributed as dist\n"
        "from space.inner import deep\nimport beside\ndist.init_process_group()\n"
        "deep.rank = beside.rank = dist.get_rank()\ndist.barrier()\nprint(deep.rank, beside.rank)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "elsewhere"))
    ran = virtual(tmp_path / "program" / "main.py", 2)
    assert [ran.lines(rank) for rank in range(2)] == [["0 0"], ["1 1"]], ran.outcome.findings


LAUNCHER = """
import torch.multiprocessing as mp
number = None
def call(rank, function):
    global number
    number = rank
    function()
def launch(function):
    mp.spawn(call, (function,), nprocs=2)
"""
LAUNCHED = """
import time, launcher
def work():
    time.sleep(0.1)
    print(launcher.number)
if __name__ == "__main__":
    launcher.launch(work)
"""


def test_library_that_spawns_ranks_has_module_state_per_rank(virtual: VirtualRuns, tmp_path: Path) -> None:
    (tmp_path / "launcher.py").write_text(LAUNCHER)
    (tmp_path / "main.py").write_text(LAUNCHED)
    ran = virtual(tmp_path / "main.py", 0)
    assert [ran.lines(rank) for rank in range(2)] == [["0"], ["1"]], ran.outcome.findings


KEPT = """
import networkx, torch, torch.distributed as dist
{start}
def keeps(node):
    dist.all_reduce(torch.ones(1), group={group})
list(networkx.subgraph_view(networkx.path_graph(1), filter_node=keeps))
"""
OF_RANK_0 = """dist.init_process_group()
if not hasattr(networkx, "kept"):
    networkx.kept = dist.new_group([0], use_local_synchronization=True)"""
ON_RANK_0 = """import os
if os.environ["RANK"] == "0":
    dist.init_process_group()"""


@pytest.mark.parametrize(
    ("start", "group", "message"),
    [(OF_RANK_0, "networkx.kept", "is not initialized in"), (ON_RANK_0, "None", "group has not been initialized")],
)
def test_finding_suggests_own_option_if_a_package_keeps_a_group(
    virtual: VirtualRuns, tmp_path: Path, start: str, group: str, message: str
) -> None:
    (tmp_path / "kept.py").write_text(KEPT.format(start=start, group=group))
    (finding,) = virtual(tmp_path / "kept.py", 2, timing="recorded").outcome.findings
    assert message in finding.text and "--own networkx" in finding.text and "rank 1 at kept.py" in finding.text


def test_torch_in_any_folder_counts_as_library(monkeypatch: pytest.MonkeyPatch) -> None:
    built = SimpleNamespace(origin="/home/ada/pytorch/torch/__init__.py")
    monkeypatch.setattr("virtual.ranks.sites.PathFinder.find_spec", lambda name: built)
    monkeypatch.setattr(sites, "distribution", lambda name: SimpleNamespace(locate_file=lambda path: Path("/opt/libs")))
    assert {"/home/ada/pytorch/torch/", "/opt/libs/"} < {*sites.find_libraries()}
    assert "/opt/libs/" in sites.find_installed()


@pytest.mark.parametrize("file", ["exercise_tests.py", "queues.py"])
def test_virtual_runs_pytest_files(file: str, virtual: VirtualRuns) -> None:
    arguments = ("-q", "-p", "no:cacheprovider", str(PROGRAMS / file))
    options = VirtualOptions(UserProgram("pytest", arguments, True), 0, star(8))
    output: list[str] = []
    finished = virtual.host.run(options, show=lambda stream, text: output.append(text))
    assert " passed" in "".join(output) and "failed" not in "".join(output) and finished.outcome.status == 0


def test_gpu_program_runs_on_cpu(virtual: VirtualRuns, tmp_path: Path) -> None:
    cluster = read_network("dgx-h100", 4).cluster
    options = {"cluster": cluster, "gpu": True, "compute": "H100 SXM"}
    ran = virtual(PROGRAMS / "gpu_training.py", 4, str(tmp_path / "model.pt"), timing="live", **options)
    assert ran.outcome.findings == (), ran.outcome.findings
    lines = ran.lines(3)
    assert lines[3].endswith("nccl NVIDIA H100 SXM 4 3 True") and all(line.endswith("True") for line in lines[:3])
    assert float(lines[2].split()[1]) < float(lines[0].split()[1])
    assert ran.recording is not None
    assert replay(ran.recording, cluster).elapsed == pytest.approx(ran.outcome.jobs[0].elapsed, rel=1e-9)


def test_host_launch_time_limits_small_operators(virtual: VirtualRuns) -> None:
    cluster = read_network("dgx-h100", 2).cluster
    options = {"cluster": cluster, "gpu": True, "compute": "H100 SXM", "launch_s": 10e-6}
    live, recorded = (virtual(PROGRAMS / "launches.py", 2, timing=way, **options) for way in ("live", "recorded"))
    launched, done, ahead, read = map(float, live.lines(0)[0].split())
    assert launched == pytest.approx(100 * 10e-6, rel=1e-3) and done == pytest.approx(launched + 2e-6, rel=1e-3)
    assert ahead == pytest.approx(10e-6, rel=2e-2)
    assert read > 4 * (1 << 26) / 3.35e12  # memory bandwidth from the data sheet
    elapsed = live.outcome.jobs[0].elapsed
    for ran in (live, recorded):
        assert ran.recording is not None and len(ran.recording.streams) == 4
        assert replay(ran.recording, cluster).elapsed == pytest.approx(elapsed, rel=1e-9)


def test_fake_run_matches_calls_and_times_of_real_run(virtual: VirtualRuns) -> None:
    cluster = read_network("dgx-h100", 4).cluster
    options = {"cluster": cluster, "gpu": True, "compute": "H100 SXM", "timing": "recorded"}
    real, fake, few = (
        virtual(PROGRAMS / "fake_training.py", 4, **options, **more)
        for more in ({}, {"fake": True}, {"fake": True, "only": (0,)})
    )
    assert [run.outcome.findings for run in (real, fake, few)] == [(), (), ()]
    assert fake.lines(3) == ["nan rank 0 NVIDIA H100 SXM"] and "nan" not in real.out and not few.lines(3)
    recordings = [run.recording for run in (real, fake, few)]
    calls, steps = [], []
    for recording in filter(None, recordings):
        calls.append(sorted((call.rank, recording.describe(at)) for at, call in enumerate(recording.calls)))
        steps.append({mark.name: mark.mean_s for mark in mark_figures(replay(recording, cluster))}["step"])
    assert calls[0] == calls[1]
    assert [call for call in calls[2] if call[0] == 0] == [call for call in calls[0] if call[0] == 0]
    assert steps == pytest.approx([steps[0]] * 3, rel=1e-9)


def test_fake_run_rejects_measured_compute_and_unknown_ranks() -> None:
    with pytest.raises(InputError, match=r"if `fake` is set, not .measured"):
        VirtualOptions(UserProgram("x.py"), 4, star(4), compute="measured", fake=True)
    with pytest.raises(InputError, match="ascending ranks from 0 to 3, including 0, not"):
        VirtualOptions(UserProgram("x.py"), 4, star(4), fake=True, only=(0, 4))


def test_program_with_syntax_error_is_rejected(virtual: VirtualRuns, tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("def (:\n")
    with pytest.raises(InputError, match=r"broken\.py: not a Python program"):
        virtual(broken, 2)


def test_docs_show_actual_hang_report(virtual: VirtualRuns, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "virtual-ranks.md").read_text()
    program = page.partition("```python\n")[2].partition("```")[0]
    shown = page.partition("```\ndeadlock")[2].partition("```")[0]
    (tmp_path / "ring.py").write_text(program)
    (finding,) = virtual(tmp_path / "ring.py", 4).outcome.findings
    assert finding.text == f"deadlock{shown.rstrip()}"


PROGRAM = Path(__file__).parent / "virtual_programs" / "trained.py"
WAYS = ("ddp", "ddp_hook", "fsdp1", "fsdp2", "hsdp", "tensor", "sequence", "pipeline")


@pytest.mark.parametrize("way", WAYS)
def test_sharded_losses_match_one_device_and_replay_matches_time(virtual: VirtualRuns, way: str) -> None:
    cluster = simcomm.two_level_tree(2, 2, "10 Gbit/s", "5 us", 4.0)
    ran = virtual(PROGRAM, 4, way, cluster=cluster, compute="model", timing="live")
    assert [ran.lines(rank) for rank in range(4)] == [["equal"]] * 4, (ran.out, ran.err)
    assert ran.outcome.findings == () and ran.recording is not None
    again = replay(ran.recording, cluster)
    assert again.elapsed == pytest.approx(ran.outcome.jobs[0].elapsed, rel=1e-9)


@pytest.mark.parametrize("way", ["ddp", "pipeline"])
def test_recordings_of_live_and_recorded_timing_replay_equally(virtual: VirtualRuns, way: str) -> None:
    cluster = simcomm.two_level_tree(2, 2, "10 Gbit/s", "5 us", 4.0)
    elapsed = []
    for timing in ("live", "recorded"):
        ran = virtual(PROGRAM, 4, way, cluster=cluster, compute="model", timing=timing)
        assert ran.recording is not None
        elapsed.append(replay(ran.recording, cluster).elapsed)
    assert elapsed[0] == pytest.approx(elapsed[1], rel=1e-12)
