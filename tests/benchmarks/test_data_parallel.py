"""DataParallel is always predicted. It runs on GPUs, and is skipped with a reason without them."""

import json
import runpy
from math import isfinite
from pathlib import Path

import pytest
import torch

from benchmarks.torch_strategies.data_parallel import run_data_parallel, train_by_one
from collectives.errors import InputError
from collectives.training.workload import Training
from realcomm.training.datasets import Shard
from realcomm.training.gradient_sync import no_sync
from realcomm.training.models import build_model
from realcomm.training.replica import make_replica, take_step
from realcomm.training.stopwatch import Stopwatch

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "data_parallel.py"
TWO_EACH = Training(None, dataset="synthetic", batch_size=2, images=12, learning_rate=0.05)
FEW = torch.cuda.device_count() < 2


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_data_parallel_losses_equal_those_of_a_single_process():
    steps = train_by_one(0, 1, TWO_EACH, devices=2, steps=3)
    joined = Training(None, dataset="synthetic", batch_size=4, images=12, learning_rate=0.05)
    replica = make_replica(build_model(joined, joined.seed), joined, 2, 3)
    expected = [take_step(replica, *batch, no_sync, Stopwatch(0)) for batch in Shard(joined, 0, 1, 3)]
    assert steps.losses == expected and len(steps.seconds) == 3


@pytest.mark.skipif(not FEW, reason="there are two GPUs")
def test_data_parallel_run_is_skipped_without_two_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError, match="DataParallel needs 2 GPUs in one process, and"):
        run_data_parallel(TWO_EACH, 2, steps=3)
    monkeypatch.setattr("sys.argv", [str(SCRIPT), "--devices", "2", "-o", str(tmp_path / "found.json")])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    assert "2 GPUs: skipped, DataParallel needs 2 GPUs in one process" in capsys.readouterr().out
    [predicted] = json.loads((tmp_path / "found.json").read_text())["predicted"]
    assert predicted["data_parallel"] > predicted["ddp"]


@pytest.mark.gpu
@pytest.mark.skipif(FEW, reason="DataParallel needs two GPUs, and this machine has fewer")
def test_data_parallel_trains_on_two_gpus():
    steps = run_data_parallel(TWO_EACH, 2, steps=3, timeout=120)
    assert len(steps.losses) == 3 and all(map(isfinite, steps.losses)) and min(steps.seconds) > 0
