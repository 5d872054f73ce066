"""Models cut into stages, run: the same training as one process, and the timeline that predicts it."""

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

import realcomm
from collectives.errors import InputError
from realcomm import model_parallel
from realcomm.forms.blocks import named_blocks
from realcomm.model_parallel import WARM_UP, StageCalibration, StagePlan, batch_of, build_stage, run_stage
from realcomm.profiling.model_sources import find_model
from ringlab.commands.measuring.model_parallel import predict_stages

MODEL = """
from torch import nn
def build():
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 10))
"""


def test_pairs_train_as_one_process_on_the_whole_batch(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(MODEL)
    steps = 4
    plan = StagePlan(f"{path}:build", (3, 2, 2), (("0", "1"), ("2", "3")), 2, 4, steps)
    ranks = realcomm.launch(run_stage, 4, plan, threads=1, timeout=120)
    whole = nn.Sequential(build_stage(plan, 0), build_stage(plan, 1))
    optimizer = torch.optim.SGD(whole.parameters(), lr=plan.learning_rate, momentum=0.9)
    for step in range(steps):
        batches = [batch_of(plan, replica, step) for replica in range(2)]
        images, labels = (torch.cat(parts) for parts in zip(*batches, strict=True))
        optimizer.zero_grad()
        loss = functional.cross_entropy(whole(images), labels)
        loss.backward()
        optimizer.step()
        assert (ranks[2].losses[step] + ranks[3].losses[step]) / 2 == pytest.approx(loss.item(), rel=1e-5)
    assert ranks[0].digest == ranks[1].digest and ranks[2].digest == ranks[3].digest
    sums = sum(each.detach().double().sum().item() for each in whole.parameters())
    assert ranks[0].digest + ranks[2].digest == pytest.approx(sums, rel=1e-5)
    assert ranks[0].losses == [] and len(ranks[0].step_s) == steps > WARM_UP
    names = [span.name for span in ranks[0].spans if span.step == 0]
    assert names == ["forward", "send", "wait", "backward", "sync", "optimizer"]


def test_a_stage_lies_and_computes_on_the_ranks_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's meta device, which computes nothing, refuses what lies elsewhere."""
    path = tmp_path / "mine.py"
    path.write_text(MODEL)
    meta = torch.device("meta")
    monkeypatch.setattr(model_parallel, "own_device", lambda: meta, raising=False)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
    try:
        one = model_parallel.StageRank(0, StagePlan(f"{path}:build", (3, 2, 2), (("0", "1", "2", "3"),), 1, 4, 1))
        assert {each.device for each in (*one.model.parameters(), one.given, *one.batch(0))} == {meta}
        assert len(one._time_phases()) == 3
    finally:
        dist.destroy_process_group()


def test_a_row_is_predicted_as_one_stage_after_the_other() -> None:
    first = StageCalibration(1.0, 2.0, 0.5, 0.0, 0.25)
    last = StageCalibration(3.0, 4.0, 0.5, 0.125, 8.0)
    assert predict_stages([[first]]) == 1 + 2 + 0.25 + 0.5
    behind = 1 + 0.125 + 3 + 4 + 0.125 + 2 + 0.75  # the first stage is the last to be done ...
    alone = 1 + 0.125 + 3 + 4 + 0.125 + 8 + 0.5  # ... unless the other, its gradient sent, averages longer
    assert predict_stages([[first], [last]], 2) == max(behind, alone) == alone
    slow = first._replace(forward=2.0)
    assert predict_stages([[first, slow], [last, last]], 4) == alone + 1


def test_more_processes_than_cores_take_turns() -> None:
    """What a row does side by side, the last stage's average beside the first one's backward, is then one by one."""
    first = StageCalibration(1.0, 2.0, 0.5, 0.0, 0.25)
    last = StageCalibration(3.0, 4.0, 0.5, 0.125, 8.0)
    all_work = sum(first) + sum(last) + 0.125  # a message there and one back
    assert predict_stages([[first], [last]], 1) == all_work
    assert predict_stages([[first] * 2, [last] * 2], 2) == all_work


def test_resnets_are_blocks_and_other_models_are_refused() -> None:
    model = find_model("resnet18", (3, 32, 32)).build().eval()
    images = torch.randn(2, 3, 32, 32)
    assert torch.equal(nn.Sequential(*named_blocks(model, "resnet18").values())(images), model(images))
    with pytest.raises(InputError, match="no list of blocks"):
        named_blocks(nn.Linear(2, 2), "mine")
