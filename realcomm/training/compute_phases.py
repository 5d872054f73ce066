"""Training steps of a process that computes by itself."""

from dataclasses import replace
from statistics import median

import torch
from torch.utils.data import DataLoader

from collectives.training.workload import ComputePhases, Training
from realcomm.launching.group import own_device
from realcomm.launching.status import report_progress
from realcomm.training.datasets import load_images
from realcomm.training.gradient_sync import no_sync
from realcomm.training.models import build_model
from realcomm.training.replica import WARM_UP_STEPS, make_replica, take_step
from realcomm.training.stopwatch import Stopwatch

MEASURED_STEPS = 12


class LoneTraining:
    """Training steps without communication: of a new model, on one batch, with a certain number of threads."""

    def __init__(self, training: Training, threads: int | None = None) -> None:
        """Prepare the model and a batch; the steps have as many threads as this process, unless said."""
        self._threads, self._watch = threads, Stopwatch(rank=0)
        alone = replace(training, sync_batch_norm=False)  # there is nobody to do it with
        self._replica = make_replica(build_model(alone, training.seed), training)
        dataset = load_images(training, train=True)
        images, labels = next(iter(DataLoader(dataset, training.batch_size)))
        self._batch = images.to(own_device()), labels.to(own_device())

    def take_steps(self, count: int, warm_up: int = 1) -> list[ComputePhases]:
        """Return the phases of so many steps, after the first ones, which do not count."""
        before, steps = torch.get_num_threads(), list[ComputePhases]()
        torch.set_num_threads(self._threads or before)
        try:
            for done in range(1, warm_up + count + 1):
                take_step(self._replica, *self._batch, no_sync, self._watch)
                seconds = self._watch.phases()
                steps.append(ComputePhases(seconds["forward"], seconds["backward"], seconds["optimizer"]))
                report_progress(done, warm_up + count, "computing without communication")
        finally:
            torch.set_num_threads(before)
        return steps[warm_up:]


def measure_alone(training: Training) -> float:
    """Return the median seconds of a step in this process, without communication."""
    return median(phases.total for phases in LoneTraining(training).take_steps(MEASURED_STEPS, WARM_UP_STEPS))
