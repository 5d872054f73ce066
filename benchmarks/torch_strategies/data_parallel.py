"""Train with ``torch.nn.DataParallel``, which drives several GPUs from one process."""

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import nn

from collectives.errors import InputError
from collectives.training.workload import Training
from realcomm.launching.launcher import launch
from realcomm.training.datasets import Shard, load_next
from realcomm.training.gradient_sync import no_sync
from realcomm.training.models import build_model
from realcomm.training.replica import make_replica, take_step
from realcomm.training.stopwatch import Stopwatch


class Steps(NamedTuple):
    """Steps of one training: the seconds of each, and the loss before it."""

    seconds: list[float]
    losses: list[float]


def why_not(devices: int) -> str:
    """Return the reason why DataParallel cannot run on this many GPUs, or "".

    >>> why_not(10**6)[:38]
    'DataParallel needs 1000000 GPUs in one'
    """
    here = torch.cuda.device_count()
    return (
        "" if here >= devices > 1 else f"DataParallel needs {max(2, devices)} GPUs in one process, and {here} are here"
    )


def run_data_parallel(training: Training, devices: int, *, steps: int, timeout: float = 600.0) -> Steps:
    """Train in one process on ``devices`` GPUs, with ``batch_size`` images per GPU and step.

    The batches are the concatenated batches of as many ranks. Raise InputError if there are fewer GPUs, RunFailed and
    TimedOut.

    >>> run_data_parallel(Training(None), 2, steps=5)  # doctest: +SKIP
    Steps(seconds=[...], losses=[...])
    """
    if reason := why_not(devices):
        raise InputError(reason)
    runs: list[Steps] = launch(train_by_one, 1, training, devices, steps, backend="nccl", timeout=timeout)
    return runs[0]


def train_by_one(rank: int, world_size: int, training: Training, devices: int, steps: int) -> Steps:
    """Train as the only rank of a group. On CPUs, where DataParallel has no devices, train the model itself."""
    all_devices = replace(training, batch_size=devices * training.batch_size, sync_batch_norm=False)
    replica = make_replica(build_model(all_devices, all_devices.seed), all_devices, devices, steps)
    gpus = list(range(devices)) if torch.cuda.is_initialized() else None
    replica = replace(replica, model=nn.DataParallel(replica.model, device_ids=gpus))
    watch, record = Stopwatch(rank), Steps([], [])
    batches = iter(Shard(all_devices, 0, 1, steps))
    for _ in range(steps):
        record.losses.append(take_step(replica, *load_next(batches, watch), no_sync, watch))
        record.seconds.append(sum(watch.phases().values()))
    return record
