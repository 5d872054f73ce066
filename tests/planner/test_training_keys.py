"""Every key of a training changes its prediction or is refused; keys that only a run uses are listed."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from scenario_texts import write

import ringlab
from collectives.errors import InputError
from collectives.training.parallelism import Parallelism
from scenarios.training_section import ComputeSection, TrainingSection

MACHINE = 'system = {nodes = 2, gpus = 4, gpu = "L40S", layout = "switches", net = "ib", nic = "400 Gbit/s"}'
IMAGES = f"""[cluster]
{MACHINE}
transport = "nccl"
[training]
model = "resnet50"
batch_size = 64
precision = "fp16"
samples_per_epoch = 1_000_000
"""
LANGUAGE = IMAGES.replace("resnet50", "gpt2").replace("fp16", "bf16").replace("= 64", "= 8")
LANGUAGE = LANGUAGE.replace("samples_per_epoch = 1_000_000\n", "")
STATED = f"{IMAGES}compute = {{forward = '9 ms', backward = '18 ms', optimizer = '1 ms'}}\n"
TRAINING = {  # values that change the prediction or are rejected
    "gradient_sync": "['ring']", "model": "'resnet18'", "sequence": "512", "parameters": "1000000",
    "dataset": "'cifar10'", "image_shape": "[3,64,64]", "batch_size": "16", "global_batch_size": "64",
    "optimizer": "'adamw'", "accumulate": "2", "sync_every": "4", "precision": "'float32'", "images": "1000",
    "samples_per_epoch": "1000", "price_per_hour": "3.0", "loader": "'decode'", "loader_rate": "100.0",
    "variable_batches": "true", "framework": "'torchtitan'", "parallelism": "{strategy='zero3'}",
    "compute": "{rate=300.0}",
}  # fmt: skip
OF_RUNS = {
    "epochs", "seed", "learning_rate", "scale_learning_rate", "momentum", "weight_decay", "schedule", "warm_up",
    "clip_norm", "sync_batch_norm", "broadcast_weights", "check_every", "data_folder", "checkpoints",
    "checkpoint_every", "download", "num_workers", "prefetch_factor", "pin_memory", "random_crop", "flip",
    "stem", "classes",
}  # fmt: skip
PARALLELISM = {
    "strategy": "'zero1'", "data": "4", "tensor": "2", "pipeline": "2", "expert": "2",
    "sequence": "true", "schedule": "'gpipe'", "virtual": "2", "microbatches": "4", "experts": "8",
    "top_k": "2", "recompute": "'full'", "bucket_mb": "25.0", "overlap": "false", "sync_every": "4",
    "half_weights": "true", "gradient_bytes": "2",
}  # fmt: skip
COMPUTE = {"rate": "500.0", "gpu": "'RTX 4090'", "profile": "'resnet18'"}
PHASES = {"forward": "'5 ms'", "backward": "'9 ms'", "optimizer": "'5 ms'", "loading": "'1 s'"}
MACHINES = {
    "cluster.system.gpus": "8", "cluster.system.gpu": "'A40'", "cluster.system.layout": "'two'",
    "cluster.system.net": "'tcp'", "cluster.system.nic": "'100 Gbit/s'", "cluster.system.p2p": "false",
    "cluster.system.cpu": "'amd'", "cluster.system.pcie": "3", "cluster.system.nccl": "'2.9'",
    "nccl.version": "'2.9'", "nccl.NCCL_ALGO": "'Tree'", "nccl.NCCL_PROTO": "'LL'", "nccl.NCCL_P2P_DISABLE": "1",
    "nccl.NCCL_MAX_NCHANNELS": "1", "nccl.NCCL_BUFFSIZE": "65536", "cluster.system.domain": "8",
}  # fmt: skip
UNCHANGED: dict[str, Any] = {}


def predict(folder: Path, text: str, *overrides: str) -> Any:
    return [case.rows for case in ringlab.predict_devices(write(folder, text), [8], *overrides).cases]


def test_every_training_key_has_a_test_case() -> None:
    assert {*TrainingSection.model_fields} == TRAINING.keys() | OF_RUNS
    assert {field.name for field in fields(Parallelism)} == {*PARALLELISM, "shard"}
    assert {*ComputeSection.model_fields} == COMPUTE.keys() | PHASES.keys()


NOT_TRIED = {  # image_shape and dataset trace the model, which takes seconds
    IMAGES: {"images", "image_shape", "dataset"}, LANGUAGE: {"price_per_hour", "optimizer"},
}  # fmt: skip
CASES = [
    *((text, "training.", key, TRAINING[key]) for text in NOT_TRIED for key in TRAINING.keys() - NOT_TRIED[text]),
    *((LANGUAGE, "training.parallelism.", key, value) for key, value in PARALLELISM.items()),
    (f"{LANGUAGE}parallelism.strategy = 'hsdp'\n", "training.parallelism.", "shard", "2"),
    *((IMAGES, "training.compute.", key, value) for key, value in COMPUTE.items()),
    *((STATED, "training.compute.", key, value) for key, value in PHASES.items()),
    *((LANGUAGE, "", key, value) for key, value in MACHINES.items()),
]


@pytest.mark.parametrize(("text", "table", "key", "value"), sorted(CASES))
def test_training_key_has_an_effect_or_is_rejected(tmp_path: Path, text: str, table: str, key: str, value: str) -> None:
    text = text.replace("batch_size =", "#") if key == "global_batch_size" else text
    if text not in UNCHANGED:
        UNCHANGED[text] = predict(tmp_path, text)
    try:
        assert predict(tmp_path, text, f"{table}{key}={value}") != UNCHANGED[text]
    except InputError as error:
        assert key.rpartition(".")[2] in str(error).partition(": ")[2], error


STAR = 'cluster = {topology = "star", hosts = 8, bandwidth = "1 Gbit/s", latency = "5 us"}\n'
GLOBAL = LANGUAGE.replace("batch_size = 8", "global_batch_size = 64")


def test_global_batch_is_split_among_the_replicas(tmp_path: Path) -> None:
    answers = []
    for text in (GLOBAL, LANGUAGE):
        ((step,),) = predict(tmp_path, text)
        plan = ringlab.plan(tmp_path / "asked.toml", "plan.providers=['AWS']", "plan.most_nodes=1", target_samples=1e6)
        answers.append((step.samples_per_s, step.memory, [row.hours for row in plan.candidates if row.gpus == 8]))
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    ("text", "override", "message"),
    [
        (GLOBAL, "global_batch_size=60", "global_batch_size 60 is not divisible by 8 replicas; use a multiple of 8"),
        (STATED.replace("batch_size = 64", "global_batch_size = 64"), "seed=1", "global_batch_size .64. cannot be"),
        (LANGUAGE, "loader='decode'", 'loader = "decode" only applies to images; set loader = "text", or remove'),
        (LANGUAGE, "parallelism={schedule='gpipe'}", "schedule gpipe requires a pipeline; set pipeline to at least 2"),
        (f"{STAR}[training]\n", "variable_batches=true", "variable_batches requires transport"),
    ],
)
def test_contradicting_keys_are_rejected(tmp_path: Path, text: str, override: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        predict(tmp_path, text, f"training.{override}")
