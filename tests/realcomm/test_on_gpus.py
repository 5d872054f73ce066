"""Ranks on GPUs compute the same as on CPUs, within the precision of both."""

import json
import os
import subprocess
import sys
from pathlib import Path

import gpu_runs
import pytest
import real_programs
import torch
from command_line import ROOT

from realcomm.launching.launcher import launch
from replay.recording import read_recording

ON_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="NCCL needs a CUDA GPU, and this machine has none")
WITHIN = {"fp16": 0.03, "bf16": 0.03}  # of a loss; of float32 a thousandth
SCRIPT = """
import json, os, torch, torch.distributed as dist
dist.init_process_group()
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
a, begin, end = torch.ones(4096, 4096, device="cuda"), *(torch.cuda.Event(enable_timing=True) for _ in range(2))
dist.all_reduce(a)
torch.cuda.synchronize()
begin.record()
for _ in range(20):
    a = a @ a
end.record()
dist.all_reduce(a)
torch.cuda.synchronize()
print(json.dumps(begin.elapsed_time(end) / 1e3))
dist.destroy_process_group()
"""


@pytest.mark.gpu
@ON_GPU
def test_every_sync_trains_on_gpus_as_on_cpus(tmp_path: Path):
    on_gpus, on_cpus = (
        launch(gpu_runs.train_in_every_way, 2, tmp_path / backend, backend=backend, timeout=200)[0]
        for backend in ("nccl", "gloo")
    )
    for name, losses in on_gpus.items():
        assert losses == pytest.approx(on_cpus[name], rel=WITHIN.get(name, 1e-3)), name


@pytest.mark.gpu
@ON_GPU
def test_strategies_on_gpus_train_as_on_cpus():
    on_gpus, on_cpus = (
        launch(gpu_runs.train_with_every_strategy, 4, backend=backend, timeout=200) for backend in ("nccl", "gloo")
    )
    for of_rank, wanted in zip(on_gpus, on_cpus, strict=True):
        for name, losses in of_rank.items():
            assert losses == pytest.approx(wanted[name], rel=1e-3), name


@pytest.mark.gpu
@ON_GPU
@pytest.mark.parametrize("bound", [False, True], ids=["current device", "device_id"])
def test_new_groups_after_channels_on_gpus_have_all_ranks(bound: bool, tmp_path: Path):
    store = tmp_path / "store" if bound else None
    (name, total), *others = launch(real_programs.groups_after_channels, 3, store, backend="nccl", timeout=60)
    assert others == [(name, total)] * 2 and total == 3.0


@pytest.mark.gpu
@ON_GPU
def test_groups_on_gpus_run_random_programs_correctly():
    assert launch(real_programs.compare_with_oracle, 3, range(20), True, backend="nccl", timeout=120) == [[]] * 3


@pytest.mark.gpu
@ON_GPU
def test_record_on_a_gpu_contains_compute(tmp_path: Path):
    script, file = tmp_path / "script.py", tmp_path / "run.json"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "ringlab", "record", "--ranks", "1", "-o", str(file), str(script)]
    done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    [computed] = (json.loads(line) for line in done.stdout.splitlines() if line.replace(".", "").isdecimal())
    assert read_recording(file).computed()[0] >= 0.9 * computed > 0
