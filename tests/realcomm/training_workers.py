"""Workers of the tests of checkpoints and faults: trainings of a small model on few images."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

from benchmarks.studies.faults_on_purpose import Fault
from collectives.catalogue import find_algorithm
from collectives.training.workload import Buckets, ComputePhases, Training
from realcomm.training import datasets, running
from realcomm.training.checkpoints import Checkpointing, find_start
from realcomm.training.observing import Observer, StepRecord
from realcomm.training.running import RunningTraining
from realcomm.training.trainer import train_rank

BATCH, STEPS_PER_EPOCH = 4, 3
RECIPES: dict[str, dict[str, Any]] = {
    "ring": {"gradient_sync": find_algorithm("all_reduce/ring")},
    "ddp": {"gradient_sync": None, "optimizer": "adamw", "precision": "bf16", "warm_up": 5},
    "overlapped": {
        "gradient_sync": find_algorithm("all_reduce/ring"),
        "buckets": Buckets(),
        "accumulate": 2,
        "clip_norm": 0.5,
    },
    "local": {"gradient_sync": find_algorithm("all_reduce/naive"), "sync_every": 4},
}


def small_model(name: str, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Flatten(), nn.Linear(3 * 32 * 32, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(), nn.Linear(16, 10)
    )


load_pictures = datasets.load_images


def few_images(training: Training, train: bool) -> Any:
    if training.dataset == "imagefolder":
        return load_pictures(training, train)
    numbers = torch.Generator().manual_seed(0)
    count = STEPS_PER_EPOCH * BATCH * 2
    return TensorDataset(torch.randn(count, 3, 32, 32, generator=numbers), torch.arange(count) % 10)


def make_small() -> None:
    vars(running).update(build_model=small_model, measure_alone=lambda training: ComputePhases(0.0, 0.0, 0.0))
    vars(datasets).update(load_images=few_images)


class Losses(Observer):
    def __init__(self) -> None:
        self.losses: list[float] = []

    def step_done(self, running: RunningTraining, record: StepRecord) -> None:
        self.losses.append(record.loss)


class FailingAtTheEnd(Observer):
    def end(self, running: RunningTraining, error: BaseException | None) -> None:
        raise OSError("no space for the last line")


def small(**changed: Any) -> Training:
    return Training(**{"batch_size": BATCH, **changed})


def train_small(rank: int, training: Training, seed: int, resume: str | Path | None = None) -> tuple[list[float], str]:
    torch.manual_seed(seed + rank)
    losses, start = Losses(), find_start(training, 2, resume) if rank == 0 else None
    looking_on: list[Observer] = [Checkpointing(training, start.checkpoint if start else None), losses]
    result = train_rank(rank, 2, training, observers=looking_on)
    return losses.losses, result.digest


def go_on_in_every_way(rank: int, world_size: int, folder: Path) -> dict[str, list[tuple[list[float], str]]]:
    """Train without a stop, and from the second-step and newest checkpoints of a training of one epoch."""
    make_small()
    runs = {}
    pictures = {"dataset": "imagefolder", "data_folder": folder / "pictures", "classes": 2, "random_crop": 4}
    recipes = RECIPES | {"pictures": RECIPES["ring"] | pictures | {"flip": True, "num_workers": 1}}
    for name, recipe in recipes.items():
        storage = {"checkpoints": folder / name, "checkpoint_every": 2}
        uninterrupted = train_small(rank, small(**recipe, epochs=2), seed=1)
        train_small(rank, small(**recipe, **storage, epochs=1), seed=1)
        [second] = (folder / name).glob("*/step-00000002.pt")
        from_second = train_small(rank, small(**recipe, epochs=2), 5, second)
        from_newest = train_small(rank, small(**recipe, **storage, epochs=2), 9, "auto")
        at_the_end = train_small(rank, small(**recipe, **storage, epochs=2), 9, "auto")
        runs[name] = [uninterrupted, from_second, from_newest, at_the_end]
    return runs


def learn_together(rank: int, world_size: int, folder: Path, start: Path | None) -> tuple[list[float], Any, float]:
    """Train a model without rank-dependent state; return losses, weights and the number of examples seen."""
    make_small()
    vars(running).update(build_model=lambda name, seed: nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 10)))
    storage = {"checkpoints": folder, "checkpoint_every": 4} if start is None else {}
    training = small(
        gradient_sync=RECIPES["ring"]["gradient_sync"], batch_size=2 * BATCH // world_size, epochs=2, **storage
    )
    losses = Losses()
    run = running.RunningTraining(rank, world_size, training, observers=[Checkpointing(training, start), losses])
    run.take_steps()
    return losses.losses, run.model.state_dict(), run.finish().facts["examples_seen"]


def train_with(
    rank: int, world_size: int, training: Training, observers: Sequence[Observer], start: Path | None = None
) -> object:
    make_small()
    return train_rank(rank, world_size, training, observers=[Checkpointing(training, start), *observers])


def faulty(kind: str, phase: str) -> Fault:
    """Return a fault in the fifth step, on rank 1, or on rank 0 for faults of writing."""
    return Fault(kind, 0 if kind in ("full", "kill writer") else 1, 4, phase)
