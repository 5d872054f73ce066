"""The images of each rank: batches to train on, and a share of the held-out images."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch
from torch.utils.data import DataLoader, DistributedSampler, Subset

from collectives.checks import check_whole_number
from collectives.errors import InputError
from collectives.workload import Training
from realcomm.launching.group import own_device
from realcomm.training.datasets import load_images

TEST_BATCH_SIZE = 256  # only speed depends on it

Batch = tuple[torch.Tensor, torch.Tensor]  # images float32 [batch, 3, 32, 32], labels int64 [batch]


class Shard:
    """One rank's batches, epoch after epoch. In an epoch every image goes to one rank at most, in a new random order.

    All batches are full, so that the mean over the ranks is the mean over their joined batch. The remaining images of
    an epoch, fewer than ``world_size * batch_size`` and others each time, are left out.
    """

    def __init__(self, training: Training, rank: int, world_size: int, steps: int | None = None) -> None:
        """Take the batches of all epochs, or the first ``steps`` of them. Raise InputError if there is none."""
        check_whole_number("epochs", training.epochs, at_least=1)
        if steps is not None:
            check_whole_number("steps", steps, at_least=1)
        dataset = load_images(training.dataset, train=True, folder=training.data_folder)
        self.rank, self.world_size, self.epochs = rank, world_size, training.epochs
        self.sampler: DistributedSampler[Any] = DistributedSampler(
            dataset, world_size, rank, seed=training.seed, drop_last=True
        )
        self.loader = DataLoader(dataset, training.batch_size, sampler=self.sampler, drop_last=True)
        available = self.epochs * len(self.loader)
        self.steps = available if steps is None else min(steps, available)
        if self.steps < 1:
            images, needed = len(dataset), world_size * training.batch_size  # type: ignore[arg-type]
            raise InputError(
                f"batch_size {training.batch_size} on {world_size} ranks takes {needed} images a step, but "
                f"{training.dataset} has {images} to train on; choose at most {images // world_size}"
            )

    def epochs_after(self, steps: int) -> float:
        """Return how many epochs ``steps`` steps are."""
        return steps / len(self.loader)

    def __iter__(self) -> Iterator[Batch]:
        return islice(self._all(), self.steps)

    def _all(self) -> Iterator[Batch]:
        for epoch in range(self.epochs):
            self.sampler.set_epoch(epoch)
            for images, labels in self.loader:
                yield images.to(own_device()), labels.to(own_device())


def held_out_batches(training: Training, rank: int, world_size: int) -> Iterator[Batch]:
    """Yield this rank's share of the held-out images, of which every image goes to exactly one rank."""
    dataset = load_images(training.dataset, train=False, folder=training.data_folder)
    share = Subset(dataset, range(rank, len(dataset), world_size))  # type: ignore[arg-type]
    for images, labels in DataLoader(share, TEST_BATCH_SIZE):
        yield images.to(own_device()), labels.to(own_device())
