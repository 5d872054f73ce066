"""How long a training step computes on this machine, communication apart."""

from collections.abc import Callable
from functools import partial
from itertools import groupby
from statistics import median, quantiles

import torch.distributed as dist
from torch.utils.data import DataLoader

from collectives.records.calibration import ComputePoint
from collectives.records.trace import Span
from collectives.workload import ComputePhases, Training
from realcomm.launching.group import own_device
from realcomm.launching.launcher import launch
from realcomm.launching.status import report_progress, set_status
from realcomm.launching.types import Progress
from realcomm.training.data import load
from realcomm.training.replica import (
    WARM_UP_STEPS,
    Stopwatch,
    build_model,
    make_replica,
    no_sync,
    training_step,
)

MEASURED_STEPS = 12


def measure_phases(
    training: Training, processes: int, threads: int, timeout: float = 600.0, progress: Progress | None = None
) -> ComputePoint:
    """Forward, backward and optimizer of the training's step in ``processes`` processes of ``threads`` threads at once.

    They start together and never communicate. A training waits in every step for its slowest rank, so of the
    processes' k-th steps the slowest counts; a phase is its median over the steps after warm-up. Raises InputError
    for a model or images that are not there, and RankFailed and TimedOut as ``launch`` does.
    """
    load(training.dataset, train=True, folder=training.data_folder)  # refused here rather than in every process
    ranks = launch(_worker, processes, training, threads=threads, timeout=timeout, progress=progress)
    return slowest_phases(ranks, training, threads)


def slowest_phases(ranks: list[list[ComputePhases]], training: Training, threads: int) -> ComputePoint:
    """The medians over steps of what, rank by rank and step by step, was measured; of each step its slowest rank."""
    slowest = [max(same_step, key=_seconds) for same_step in zip(*ranks, strict=True)]
    medians = (median(getattr(phases, name) for phases in slowest) for name in ("forward", "backward", "optimizer"))
    phases, (first, middle, third) = ComputePhases(*medians), quantiles(map(_seconds, slowest))
    job = training.model, training.dataset, training.batch_size
    return ComputePoint(*job, len(ranks), threads, phases, spread=(third - first) / middle)


def seconds_alone(training: Training) -> float:
    """Median seconds of a step in this process, which waits for nobody."""
    return median(map(_seconds, time_steps(prepare_step(training))))


Step = Callable[[Stopwatch], object]


def prepare_step(training: Training) -> Step:
    """A training step that is ready to be taken again and again: a fresh model, one batch, nothing communicated."""
    replica = make_replica(build_model(training.model, training.seed), training.learning_rate)
    dataset = load(training.dataset, train=True, folder=training.data_folder)
    images, labels = (half.to(own_device()) for half in next(iter(DataLoader(dataset, training.batch_size))))
    return partial(training_step, replica, images, labels, no_sync)


def time_steps(step: Step) -> list[ComputePhases]:
    """The phases of steps taken after warm-up."""
    watch, total = Stopwatch(rank=0), WARM_UP_STEPS + MEASURED_STEPS
    for done in range(1, total + 1):
        step(watch)
        report_progress(done, total, "computing without communication")
    return [_phases(spans) for spans in by_step(watch.spans)][WARM_UP_STEPS:]


def by_step(spans: list[Span]) -> list[list[Span]]:
    """One rank's spans, step by step."""
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
