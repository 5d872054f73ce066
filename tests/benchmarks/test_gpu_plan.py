"""`make gpu` without a GPU: its plan, time limits, results and wheels."""

import json
import re
import runpy
import subprocess
import sys
import tomllib
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from command_line import ROOT, run_python

from collectives.catalogue import find_algorithm
from scenarios import load

GPU = runpy.run_path(str(ROOT / "benchmarks" / "gpu.py"))
WHEELS = runpy.run_path(str(ROOT / "benchmarks" / "gpu_wheels.py"))
Part, Asked = GPU["Part"], GPU["Asked"]


def python(text: str) -> tuple[str, ...]:
    return sys.executable, "-c", text


def plan(small: bool = False) -> list[Any]:
    parts: list[Any] = GPU["make_plan"](Asked("nccl", 2, small), Path("folder"))
    return parts


def test_gpu_plan_and_installation_fit_into_nine_minutes():
    parts = plan()
    ending = 2 * GPU["ENDING_S"] * len(parts)
    assert sum(part.limit_s for part in parts) + ending <= GPU["WHOLE_S"] <= 540 - WHEELS["INSTALL_S"]
    trial = GPU["make_plan"](Asked("gloo", 2, True), Path("folder"))
    assert [part.limit_s for part in trial] == [4 * part.limit_s for part in parts], "a trial on a CPU has more time"


def test_gpu_plan_runs_all_checks_and_measurements_with_nccl():
    parts = {part.name: part for part in plan()}
    checks = ["trains", "strategies", "record", "groups", "tests"]
    measured = ["one rank", "calibration", "bench", "beside", "naive", "ring", "ddp"]
    assert list(parts) == ["machine", *checks, *measured]
    for collective, names in GPU["BENCHES"]:
        assert all(find_algorithm(name, collective) for name in names)
    (command,) = parts["beside"].commands
    names = command[command.index("--algorithm") + 1 : command.index("--repetitions")]
    assert all(find_algorithm(name, "all_reduce") for name in names)
    assert "--accept-noise" in parts["calibration"].commands[0], "a machine that is not calm loses nothing"
    training = load(ROOT / "benchmarks" / "gpu_training.toml").trainings
    assert [job.sync_name for job in training] == ["naive", "ring", "ddp"]
    assert {job.model for job in training} == {"resnet34"}
    assert all("nccl" in command for name in measured[1:] for command in parts[name].commands)
    profile, first, resumed = parts["one rank"].commands
    assert "cuda" in profile and "nccl" in first and resumed[resumed.index("--resume") + 1] == "auto"
    assert "cluster.world_size=1" in first


def test_every_gpu_test_belongs_to_a_check_of_the_gpu_plan():
    text = (ROOT / GPU["ON_GPUS"]).read_text()
    names = re.findall(r"@pytest.mark.gpu\n(?:@.*\n)*def (\w+)", text)
    chosen = {name: [test for test in names if word in test] for name, (_, word) in GPU["CHECKS"].items()}
    assert all(chosen.values()) and sorted(chain(*chosen.values())) == sorted(names)


def test_count_gpus_ignores_hidden_gpus(monkeypatch: pytest.MonkeyPatch):
    listed = SimpleNamespace(stdout="GPU 0: H200\nGPU 1: H200\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: listed)
    for visible, count in (("1", 1), ("", 0), ("-1", 0), ("0,1", 2), ("0,1,2", 2)):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert GPU["count_gpus"]() == count
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert GPU["count_gpus"]() == 2


def runs(process: int) -> bool:
    """Return whether a process is running, and not a zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_gpu_plan_continues_after_a_failed_or_hanging_command(tmp_path: Path):
    written: list[list[Any]] = []
    sleeper = "import os, time; os.fork(); os.write(1, b'%d\\n' % os.getpid()); time.sleep(60)"
    finds = f"import json; json.dump({{'answer': 42}}, open({str(tmp_path / 'found.json')!r}, 'w'))"
    parts = [
        Part("hanging", 3, (python(sleeper), python("pass"))),
        Part("broken", 60, (python("raise SystemExit(3)"),)),
        Part("found", 60, (python(finds),)),
    ]
    rows = GPU["measure"](parts, tmp_path, 123.0, lambda known: written.append(list(known)))
    assert [row["status"] for row in rows] == [rows[0]["status"], "failed with status 3", "done"]
    assert rows[0]["status"].startswith("stopped after ")
    assert rows[2]["found"] == {"answer": 42}
    assert [len(known) for known in written] == [1, 2, 3]
    parent_and_child = [int(line) for line in rows[0]["output"] if line.isdecimal()]
    assert len(parent_and_child) == 2
    assert not any(runs(process) for process in parent_and_child)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_make_gpu_starts_nothing_without_a_gpu():
    done = run_python("benchmarks/gpu.py")
    assert done.returncode == 1 and "there is no NVIDIA GPU here" in done.stderr and not done.stdout
    refused = run_python("benchmarks/gpu.py", "--ranks", 0, "--plan")
    assert refused.returncode == 2 and "--ranks must be 1 or more, not 0" in refused.stderr


@pytest.mark.slow
def test_make_gpu_runs_on_the_cpu_with_gloo(tmp_path: Path):
    file = tmp_path / "found.json"
    done = run_python("benchmarks/gpu.py", "--backend", "gloo", "--small", "-o", file, timeout_s=2400)
    results = json.loads(file.read_text())
    assert done.returncode == 0 and {row["status"] for row in results["parts"]} == {"done"}
    parts = {row["part"]: row["found"] for row in results["parts"]}
    assert set(parts["tests"].values()) <= {"passed", "skipped"} and len(parts["tests"]) >= 4
    assert {row["algorithm"] for row in parts["beside"]["all_reduce"]} == {"ring"}
    assert set(parts["one rank"]) == {"profile", "first epoch", "resumed"}
    assert set(parts["bench"]) == {collective for collective, _ in GPU["BENCHES"]}
    for sync in ("naive", "ring"):
        (training,) = parts[sync]["training"]
        assert training["step_s"]["predicted"] > 0 and training["step_s"]["measured"] > 0
    assert parts["ddp"]["training"][0]["step_s"]["measured"] > 0


def test_wheels_have_all_dependencies_except_torch():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {WHEELS["package"](line) for line in WHEELS["read_requirements"]()}
    lines = [*project["dependencies"], *project["optional-dependencies"]["torch"]]
    needed = {WHEELS["package"](line) for line in lines}
    assert wanted == needed - {"torch", "torchvision"} | {"pytest", "hypothesis"}
    options = WHEELS["target"]("3.12")
    assert options[options.index("--python-version") + 1] == "3.12" and "manylinux_2_28_x86_64" in options


def test_gpu_wheels_reject_old_torch_and_hidden_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    with monkeypatch.context() as changed, pytest.raises(SystemExit, match=r"has torch 2\.9\.1; torch>=.* is needed"):
        changed.setitem(WHEELS["install"].__globals__, "torch_version", lambda: "2.9.1")
        WHEELS["install"](tmp_path, tmp_path / "venv")
    for hidden in ("", " ", "-1"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
        with pytest.raises(SystemExit, match=r"CUDA_VISIBLE_DEVICES is '.*', which hides all GPUs"):
            WHEELS["install"](tmp_path, tmp_path / "venv")
    assert not (tmp_path / "venv").exists()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    WHEELS["check_visible_gpus"]()
