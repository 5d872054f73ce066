"""Models whose weights are not plain contiguous float32 are trained like others, or rejected by name."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from collectives import InputError, find_algorithm
from collectives.training.workload import Buckets, Training
from realcomm.training.models import build_model
from realcomm.training.trainer import train

TWO = SimpleNamespace(world_size=2, hosts=("h0", "h0"))
MODELS = Path(__file__).with_name("odd_models.py")
RING = find_algorithm("all_reduce/ring")
WAYS: dict[str, dict[str, object]] = {
    "ring": {},
    "local SGD": {"sync_every": 2},
    "ring[overlap]": {"buckets": Buckets()},
    "ring[hook=ddp]": {"buckets": Buckets(hook="ddp")},
    "ddp": {"gradient_sync": None},
}


def training_of(model: str, **changes: object) -> Training:
    data = {"dataset": "synthetic", "image_shape": (3, 4, 6), "classes": 4, "images": 32, "batch_size": 4}
    return replace(Training(RING, f"{MODELS}:{model}", **data, check_every=1, epochs=1), **changes)


@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=[pytest.mark.slow] * (way not in ("ring[overlap]", "ddp"))) for way in WAYS]
)
def test_replicas_in_channels_last_layout_stay_identical(way):
    trace = train(training_of("channels_last", **WAYS[way]), TWO)
    assert (trace.facts["replicas_identical"], trace.facts["examples_seen"]) == (1.0, 32.0)


def test_training_of_a_model_with_odd_dtypes_resumes(tmp_path):
    training = training_of("odd", checkpoints=str(tmp_path))
    train(training, TWO)
    resumed = train(replace(training, epochs=2), TWO, resume="auto")
    assert (resumed.facts["replicas_identical"], resumed.facts["examples_seen"]) == (1.0, 64.0)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("half", r"odd_models.py:half': parameter last.weight must be torch.float32, .*bf16"),
        ("number", r"odd_models.py:number' returns int; return a torch.nn.Module with trainable parameters"),
    ],
)
def test_unusable_model_error_names_the_model(name, message):
    with pytest.raises(InputError, match=message):
        build_model(training_of(name), seed=0)
