"""Random trainings whose ranks are killed again and again: resumed, they end with the bits of one never stopped."""

import random
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import training_workers
from training_workers import STEPS_PER_EPOCH, KillAfter, small

from benchmarks.studies.faults_on_purpose import Fault
from collectives.catalogue import find_algorithm
from collectives.training.workload import Buckets, Training
from realcomm.launching.failures import RankFailed
from realcomm.launching.launcher import launch
from realcomm.training.checkpoints import find_newest, folder_of
from realcomm.training.observing import Observer

PHASES = "loading", "forward", "backward", "sync", "optimizer", "checkpoint"
LONG = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(60) if seed not in (22, 31)]
SYNCS = "ring", "naive", "direct", "recursive_doubling", "double_tree", "chain", "gloo"


def draw_training(draw: random.Random, folder: Path) -> Training:
    """Return a random training of few steps, which keeps checkpoints."""
    sync = draw.choice([None, *SYNCS])
    buckets = None if sync is None else draw.choice([None, None, Buckets(), Buckets(mb=0.01), Buckets(hook="ddp")])
    changed: dict[str, Any] = {
        "gradient_sync": sync and find_algorithm(sync, "all_reduce"),
        "buckets": buckets,
        "optimizer": draw.choice(["sgd", "adamw"]),
        "schedule": draw.choice(["constant", "linear", "cosine", "step"]),
        "warm_up": draw.choice([0, 3]),
        "accumulate": draw.choice([1, 2]),
        "clip_norm": draw.choice([None, 0.5]),
        "weight_decay": draw.choice([0.0, 0.01]),
        "precision": draw.choice(["float32", "float32", "bf16"]),
        "sync_every": draw.choice([1, 2, 4]) if sync is not None and buckets is None else 1,
    }
    return small(
        **changed, seed=draw.randrange(1000), epochs=draw.randint(2, 4), checkpoints=folder,
        checkpoint_every=draw.randint(1, 5),
    )  # fmt: skip


def draw_end(draw: random.Random, world_size: int, steps: range, seconds: float) -> Observer:
    """Return what ends a rank: in a phase of one of ``steps``, in the midst of writing, or after a time."""
    rank = draw.randrange(world_size)
    if draw.random() < 0.4:
        return KillAfter(rank, seconds * draw.random())
    if draw.random() < 0.2:
        return Fault("kill writer", 0, draw.choice(steps), "optimizer")
    return Fault(draw.choice(["kill", "exit", "raise"]), rank, draw.choice(steps), draw.choice(PHASES))


@pytest.mark.parametrize("seed", [22, 31, *LONG])
def test_training_ends_with_the_same_bits_after_random_kills(seed: int, tmp_path: Path):
    draw = random.Random(seed)
    training = draw_training(draw, tmp_path)
    is_ddp = training.gradient_sync is None or training.buckets == Buckets(hook="ddp")
    world_size = 2 if is_ddp else draw.randint(2, 3)  # of three the sums differ, as DDP arranges its buckets anew
    steps = training.epochs * STEPS_PER_EPOCH * 2 // world_size
    at_once = replace(training, checkpoints=None, checkpoint_every=0)
    whole = launch(training_workers.train_on, world_size, at_once, seed)
    assert {len(losses) for losses, *_ in whole} == {steps}
    assert len({digest for _, digest, _ in whole}) == 1
    folder, kept = folder_of(training), -1
    assert folder is not None
    for _ in range(draw.randint(2, 5)):
        remaining = range(min(kept + 1, steps - 1), steps)
        end = draw_end(draw, world_size, remaining, whole[0][2])
        with suppress(RankFailed):  # some phases are in no step, and a time may be too long
            launch(training_workers.train_on, world_size, training, seed, [end], timeout=40)
        newest = find_newest(folder).newest
        step = -1 if newest is None else newest.about["step"]
        assert step >= kept
        kept = step
    resumed = launch(training_workers.train_on, world_size, training, seed)
    for (losses, digest, _), (all_losses, wanted, _) in zip(resumed, whole, strict=True):
        assert digest == wanted
        assert losses == all_losses[steps - len(losses) :]
