"""Measure how long a training step computes on this machine, without communication."""

from collections.abc import Callable
from functools import partial
from itertools import groupby
from statistics import median, quantiles

import torch.distributed as dist
from torch.utils.data import DataLoader

from collectives.records.calibration import ComputePoint
from collectives.records.spans import Span
from collectives.workload import ComputePhases, Training
from realcomm.launching.group import own_device
from realcomm.launching.launcher import launch
from realcomm.launching.status import report_progress, set_status
from realcomm.launching.types import Progress
from realcomm.training.datasets import load_images
from realcomm.training.replica import (
    WARM_UP_STEPS,
    Stopwatch,
    build_model,
    make_replica,
    no_sync,
    take_step,
)

MEASURED_STEPS = 12


def measure_phases(
    training: Training,
    processes: int,
    threads: int,
    timeout: float = 600.0,
    progress: Progress | None = None,
    backend: str = "gloo",
) -> ComputePoint:
    """Measure forward, backward and optimizer of a training step in several processes at once, of ``threads`` threads.

    With gloo they compute on the CPU, with nccl on the GPU. They start together and never communicate. A training waits
    in every step for its slowest rank, so of the processes' k-th steps the slowest counts; a phase is its median over
    the steps after warm-up. Raise InputError for an unknown model or missing images, and RankFailed and TimedOut as
    ``launch`` does.
    """
    load_images(training.dataset, train=True, folder=training.data_folder)  # raises here rather than in every process
    ranks = launch(_worker, processes, training, backend=backend, threads=threads, timeout=timeout, progress=progress)
    return combine_phases(ranks, training, threads)


def combine_phases(ranks: list[list[ComputePhases]], training: Training, threads: int) -> ComputePoint:
    """Return the medians over steps of each step's slowest rank; ``ranks`` has every rank's steps."""
    slowest = [max(same_step, key=_seconds) for same_step in zip(*ranks, strict=True)]
    medians = (median(getattr(phases, name) for phases in slowest) for name in ("forward", "backward", "optimizer"))
    phases, (first, middle, third) = ComputePhases(*medians), quantiles(map(_seconds, slowest))
    kind = training.model, training.dataset, training.batch_size
    return ComputePoint(*kind, len(ranks), threads, phases, spread=(third - first) / middle)


def measure_alone(training: Training) -> float:
    """Return the median seconds of a step in this process, without communication."""
    return median(map(_seconds, time_steps(prepare_step(training))))


Step = Callable[[Stopwatch], object]


def prepare_step(training: Training) -> Step:
    """Return a training step that can be repeated: of a new model, on one batch, without communication."""
    replica = make_replica(build_model(training.model, training.seed), training.learning_rate)
    dataset = load_images(training.dataset, train=True, folder=training.data_folder)
    images, labels = (half.to(own_device()) for half in next(iter(DataLoader(dataset, training.batch_size))))
    return partial(take_step, replica, images, labels, no_sync)


def time_steps(step: Step) -> list[ComputePhases]:
    """Return the phases of the steps after warm-up."""
    watch, total = Stopwatch(rank=0), WARM_UP_STEPS + MEASURED_STEPS
    for done in range(1, total + 1):
        step(watch)
        report_progress(done, total, "computing without communication")
    return [_phases(spans) for spans in split_by_step(watch.spans)][WARM_UP_STEPS:]


def split_by_step(spans: list[Span]) -> list[list[Span]]:
    """Return one rank's spans, step by step."""
    return [list(same) for _, same in groupby(spans, key=lambda span: span.step)]


def _worker(rank: int, world_size: int, training: Training) -> list[ComputePhases]:
    set_status("preparing a training step")
    step = prepare_step(training)
    dist.barrier()
    set_status("computing training steps without communication")
    return time_steps(step)


def _phases(spans: list[Span]) -> ComputePhases:
    seconds = {span.name: span.end - span.begin for span in spans}
    return ComputePhases(seconds["forward"], seconds["backward"], seconds["optimizer"])


def _seconds(phases: ComputePhases) -> float:
    return phases.total
