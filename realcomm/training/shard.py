"""The images of each rank: batches to train on, and a share of the held-out images."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, Subset

from collectives.training.workload import Training
from realcomm.launching.group import own_device
from realcomm.training.datasets import Images, load_images
from realcomm.training.step_count import count_steps

TEST_BATCH_SIZE = 256  # only speed depends on it

Batch = tuple[torch.Tensor, torch.Tensor]  # images float32 [batch, 3, 32, 32], labels int64 [batch]


class Shard:
    """One rank's batches, epoch after epoch. In an epoch every image goes to one rank at most, in a new random order.

    All batches are full, so that the mean over the ranks is the mean over their joined batch. The remaining images of
    an epoch, fewer than ``world_size * batch_size`` and others each time, are left out.
    """

    def __init__(self, training: Training, rank: int, world_size: int, steps: int | None = None) -> None:
        """Take the batches of all epochs, or the first ``steps`` of them. Raise InputError if there is none."""
        dataset = load_images(training, train=True)
        images = len(dataset)  # type: ignore[arg-type]
        self.steps_per_epoch, self.steps = count_steps(training, lambda: images, world_size, steps)
        self.rank, self.world_size, self.epochs = rank, world_size, training.epochs
        self._dataset, self._batch_size = dataset, training.batch_size
        self._sampler: DistributedSampler[Any] = DistributedSampler(
            dataset, world_size, rank, seed=training.seed, drop_last=True
        )

    def epochs_after(self, steps: int) -> float:
        """Return how many epochs ``steps`` steps are."""
        return steps / self.steps_per_epoch

    def epoch_of(self, step: int) -> int:
        """Return the epoch, counted from 0, that a step belongs to."""
        return step // self.steps_per_epoch

    def ends_epoch(self, step: int) -> bool:
        """Return whether an epoch ends with a step, or the training."""
        return (step + 1) % self.steps_per_epoch == 0 or step + 1 == self.steps

    def __iter__(self) -> Iterator[Batch]:
        return self.batches()

    def batches(self, first: int = 0) -> Iterator[Batch]:
        """Yield the batches from step ``first`` on; those before are not loaded."""
        return islice(self._all(first), self.steps - first)

    def _all(self, first: int) -> Iterator[Batch]:
        start, skipped = divmod(first, self.steps_per_epoch)
        for epoch in range(start, self.epochs):
            self._sampler.set_epoch(epoch)
            rows = list(BatchSampler(self._sampler, self._batch_size, drop_last=True))
            for images, labels in load_batches(self._dataset, rows[skipped if epoch == start else 0 :]):
                yield images.to(own_device()), labels.to(own_device())


def load_batches(dataset: Images, rows: list[list[int]]) -> "DataLoader[Any]":
    """Return the batches of these rows; it takes nothing from torch's own random numbers, which models use."""
    return DataLoader(dataset, batch_sampler=rows, generator=torch.Generator())


def held_out_batches(training: Training, rank: int, world_size: int) -> Iterator[Batch]:
    """Yield this rank's share of the held-out images, of which every image goes to exactly one rank."""
    dataset = load_images(training, train=False)
    share = Subset(dataset, range(rank, len(dataset), world_size))  # type: ignore[arg-type]
    rows = list(BatchSampler(range(len(share)), TEST_BATCH_SIZE, drop_last=False))
    for images, labels in load_batches(share, rows):
        yield images.to(own_device()), labels.to(own_device())
