"""Check collectives of the backend itself, with gloo in place of NCCL."""

from pathlib import Path

import pytest
import real_workers
import torch
from command_line import Ringlab
from scenario_texts import write

import realcomm
import simcomm
from collectives import InputError
from collectives.call import make_call
from collectives.declaration import nccl
from realcomm.launching.launcher import launch
from realcomm.measuring import collective_run
from ringlab.commands.measuring import compare
from ringlab.scenario import load

COLLECTIVES = (
    "all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "all_to_all", "gather", "scatter",
)  # fmt: skip
BOX = """
[cluster]
system = {gpus = 2, gpu = "A100 SXM", nccl = "2.21"}
[collective]
name = "all_reduce"
algorithms = ["nccl", "ring"]
sizes = ["1 KiB", "64 KiB"]
"""


def test_nccl_collectives_give_correct_results():
    for wrong in launch(real_workers.check_own_collectives, 3, COLLECTIVES, timeout=120):
        assert wrong.keys() >= {"all_reduce mean", "reduce sum", "all_to_all sum"}
        assert not any(wrong.values()), wrong


@pytest.fixture
def with_gloo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "gpu_names", lambda: ["NVIDIA A100-SXM4-80GB"] * 2)
    monkeypatch.setattr("ringlab.commands.measuring.compare.check_launch", lambda *_: None)
    monkeypatch.setattr(collective_run, "check_launch", lambda *_: None)
    monkeypatch.setattr(collective_run, "launch", lambda *a, **k: launch(*a, **{**k, "backend": "gloo"}))


@pytest.mark.usefixtures("with_gloo")
def test_compare_measures_and_predicts_nccl(tmp_path: Path):
    answer = load(write(tmp_path, BOX)).compare(backend="nccl", timeout=60)
    of_nccl = [collective for collective in answer.collectives if collective.algorithm == "nccl"]
    assert [row.bytes for row in of_nccl] == [1024, 65536] and len(answer.collectives) == 4
    for row in answer.collectives:
        assert row.time_s is not None and row.time_s.measured and row.time_s.predicted
    assert {collective.algorithm for collective in answer.collectives} == {"nccl", "ring"}


@pytest.mark.usefixtures("with_gloo")
def test_compare_rejects_a_machine_with_other_gpus(tmp_path: Path):
    others = load(write(tmp_path, BOX.replace("A100 SXM", "RTX 4090")))
    with pytest.raises(
        InputError, match="is not this machine, which has these GPUs: NVIDIA A100-SXM4-80GB, NVIDIA A100"
    ):
        others.compare(backend="nccl", timeout=60)
    with pytest.raises(InputError, match="is not this machine"):
        load(write(tmp_path, BOX.replace("gpus = 2", "gpus = 4"))).compare(backend="nccl", timeout=60)


def test_nccl_algorithm_requires_the_nccl_backend(tmp_path: Path, ringlab: Ringlab):
    with pytest.raises(InputError, match="all_reduce/nccl is NCCL's own collective, but the backend is gloo"):
        realcomm.run(nccl("all_reduce"), simcomm.this_machine(2), 1024)
    refused = ringlab("compare", write(tmp_path, BOX), "--backend", "nccl")
    others = "is not this machine, which has" if torch.cuda.is_available() else "needs a CUDA GPU, and torch finds none"
    assert refused.status == 2 and others in refused.err


def test_nccl_all_gather_but_not_all_reduce_rounds_its_size_down():
    assert make_call(nccl("all_gather"), 3, 1000).elements == 249
    assert make_call(nccl("all_reduce"), 3, 1000).elements == 250
