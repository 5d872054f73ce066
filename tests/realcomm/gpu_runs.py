"""Workers that train on GPUs, or on CPUs for comparison: in every way, and with every parallelism strategy."""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from training_workers import Losses, few_images, small

from collectives.catalogue import find_algorithm
from collectives.training.parallelism import Parallelism
from collectives.training.recipe import Recipe
from collectives.training.workload import Buckets, ComputePhases
from realcomm.profiling.meta import profile_on_meta
from realcomm.profiling.model_sources import find_model
from realcomm.strategies.training import train_strategy
from realcomm.training import datasets, models, running
from realcomm.training.checkpoints import Checkpointing, find_start
from realcomm.training.trainer import train_rank
from ringlab.commands.measuring.strategy_job import plan_strategy

RING, STEPS = find_algorithm("all_reduce/ring"), 4
TRAININGS: dict[str, dict[str, Any]] = {
    "after backward": {"gradient_sync": RING},
    "our buckets": {"gradient_sync": RING, "buckets": Buckets(mb=0.001)},
    "our algorithm in DDP": {"gradient_sync": RING, "buckets": Buckets(mb=0.001, hook="ddp")},
    "DDP": {"gradient_sync": None},
    "fp16": {"gradient_sync": RING, "precision": "fp16"},
    "bf16": {"gradient_sync": RING, "precision": "bf16"},
    "channels_last": {"gradient_sync": RING},
    "SyncBatchNorm": {"gradient_sync": None, "sync_batch_norm": True},
    "local SGD": {"gradient_sync": RING, "sync_every": 2, "checkpoint_every": 2},
}
MODEL = "llama:layers=2,width=32,heads=4,context=16,vocabulary=64,hidden=64"
STRATEGIES = {
    "ddp": Parallelism(data=4),
    "fsdp": Parallelism(strategy="fsdp", data=4),
    "hsdp": Parallelism(strategy="hsdp", data=4, shard=2),
    "1f1b": Parallelism(data=2, pipeline=2, microbatches=2),
    "tensor": Parallelism(data=2, tensor=2),
}


def convolution(training: object, layout: torch.memory_format) -> nn.Module:
    """Return a small model with convolution and batch norm, which draws no random numbers in training."""
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 10)
    )
    return model.to(memory_format=layout)


def train_in_every_way(rank: int, world_size: int, folder: Path) -> dict[str, list[float]]:
    """Return the mean losses of four steps; with checkpoints, the last two follow a resume."""
    torch.backends.cudnn.allow_tf32 = False
    vars(datasets).update(load_images=few_images)
    vars(running).update(measure_alone=lambda training: ComputePhases(0.0, 0.0, 0.0))
    losses_by_way = {}
    for name, way in TRAININGS.items():
        layout = torch.channels_last if name == "channels_last" else torch.contiguous_format
        vars(models).update(build_resnet=partial(convolution, layout=layout))
        storage = {"checkpoints": folder / name} if "checkpoint_every" in way else {}
        training, losses = small(**way, **storage, epochs=2), Losses()
        for steps in (2, STEPS) if storage else (STEPS,):
            resume = "auto" if steps > 2 and storage else None
            start = find_start(training, world_size, resume).checkpoint if rank == 0 and storage else None
            looking_on = [losses, *([Checkpointing(training, start)] if storage else ())]
            train_rank(rank, world_size, training, steps, observers=looking_on)
        losses_by_way[name] = losses.losses
    return losses_by_way


def train_with_every_strategy(rank: int, world_size: int) -> dict[str, list[float]]:
    known = profile_on_meta(find_model(MODEL))
    plans = {name: plan_strategy(MODEL, known, strategy, 8, Recipe()) for name, strategy in STRATEGIES.items()}
    plans = {name: plan._replace(steps=STEPS, checked=0) for name, plan in plans.items()}
    return {name: train_strategy(rank, world_size, plan).losses for name, plan in plans.items()}
