"""``ringlab run`` with ``[training.parallelism]``: errors before ranks start, and the JSON."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import Ringlab

from collectives.records.spans import Spans
from collectives.records.trace import Trace
from ringlab.commands.measuring.strategies import StrategyAnswer
from ringlab.shared.figures import side_by_side

SCENARIO = """
[cluster]
preset = "this-machine"
world_size = 4
[training]
model = "llama:layers=2,width=8,heads=2,context=4,vocabulary=11"
batch_size = 4
optimizer = "adamw"
[training.parallelism]
strategy = "fsdp"
"""
MODEL = """
import os
from torch import nn
with open({noted!r}, "a") as file:
    print(os.getpid(), file=file)
class Skipping(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(12, 12), nn.Linear(12, 4)
    def forward(self, x):
        x = x.flatten(1)
        return self.last(x + self.first(x))
def build():
    return Skipping()
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "strategy.toml"
    path.write_text(SCENARIO)
    return path


@pytest.mark.parametrize(
    "key, message",
    [
        ("parallelism={data=3}", "data 3 x tensor 1 x pipeline 1 does not fit 4 devices; set axes"),
        ("parallelism={tensor=4}", "KV heads (2) must be a multiple of tensor (4)"),
        ("parallelism={tensor=2}", "vocabulary=11' (11) must be a multiple of tensor (2)"),
        ("parallelism={strategy='parameter_server'}", "parallelism.strategy"),
        ("parallelism={recompute='full'}", "parallelism.recompute = full can only be predicted; remove recompute"),
        ("parallelism={tensor=2,strategy='zero1'}", "is not supported by torch's ZeroRedundancyOptimizer"),
        ("parallelism={pipeline=4,microbatches=3}", "multiple of the 3 microbatches"),
        ("dataset='digits'", "dataset 'digits'"),
        ("num_workers=2", "num_workers requires an image dataset"),
        ("checkpoints='kept'", "checkpoints = 'kept'"),
        ("precision='bf16'", "precision = 'bf16' is not supported with [training.parallelism]"),
    ],
)
def test_run_rejects_unsupported_parallelism(ringlab: Ringlab, scenario: Path, key: str, message: str) -> None:
    status, out, err = ringlab("run", scenario, "--set", f"training.{key}")
    assert status == 2 and not out
    [line] = err.splitlines()
    assert str(scenario) in line and message in line


def test_user_model_is_traced_in_a_subprocess(ringlab: Ringlab, scenario: Path, tmp_path: Path) -> None:
    noted, model = tmp_path / "processes", tmp_path / "mine.py"
    model.write_text(MODEL.format(noted=str(noted)))
    changes = ("training.model='mine.py:build'", "training.image_shape=[3,2,2]", "training.parallelism={pipeline=2}")
    status, out, err = ringlab("run", scenario, *(word for change in changes for word in ("--set", change)))
    assert status == 2 and not out
    [line] = err.splitlines()
    assert "mine.py:build' does not consist of consecutive blocks" in line
    processes = noted.read_text().split()
    assert processes and str(os.getpid()) not in processes


def test_strategy_answer_is_written_as_plain_json() -> None:
    answer = StrategyAnswer(
        title="a", file="a.toml", cluster="here", model="mine", strategy="FSDP", world_size=2, batch_size=4,
        step_s=side_by_side(2.0, 1.0), samples_per_s=side_by_side(2.0, 4.0),
        held_bytes={"parameters": side_by_side(None, 8.0)}, losses=(3.0, 2.0), alone_losses=(3.0,), alone_step_s=2.0,
        same=True, traces=(Trace("a", "measured", 1, 1.0, spans=Spans.of([]), nodes=[], hosts=[]),),
    )  # fmt: skip
    large = replace(answer, alone_losses=(), alone_step_s=None, same=None)
    assert "the whole model does not fit on one device" in " ".join(large._sentences())
    content = answer.to_dict()
    assert json.loads(json.dumps(content, allow_nan=False)) == content
    assert content["kind"] == "strategy" and "traces" not in content and content["losses"] == [3.0, 2.0]
    assert content["step_s"]["error"] == 1.0 and content["held_bytes"]["parameters"]["measured"] == 8.0
