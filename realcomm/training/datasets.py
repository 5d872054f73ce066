"""Labelled images to train on, and the share of them that a rank takes."""

import os
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import interpolate
from torch.utils.data import BatchSampler, DataLoader, Dataset, DistributedSampler, Subset, TensorDataset

from collectives.errors import InputError
from collectives.input_files import is_made_by_kernel, reason
from collectives.training.workload import Training
from realcomm.launching.group import own_device
from realcomm.launching.torch_process import import_compiler
from realcomm.training.rank_result import count_steps

Images = Dataset[Any]  # of pairs: image float32 of the training's image_shape, normalised; label 0..classes-1
HOLDS = {"cifar10": "cifar-10-batches-py", "imagefolder": "train/ and test/"}

MOST_FILES = 4_000_000  # of a folder of pictures: each takes a quarter of a kilobyte, and ImageNet has 1,281,167
HELD_OUT = 0.2  # of the digits, in equal shares of every class; the same images for every seed of a training
SPLIT_SEED = 0

# Of the 50,000 training images, per channel, in 0..1.
CIFAR10_MEAN, CIFAR10_STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
TEST_BATCH_SIZE = 256  # only speed depends on it
Batch = tuple[torch.Tensor, torch.Tensor]  # images float32 [batch, 3, 32, 32], labels int64 [batch]


def load_images(training: Training, train: bool) -> Images:
    """Return the images that a training learns from, or the held-out ones that it never sees.

    Raise InputError for a data set whose files are missing or do not fit the training.
    """
    if training.dataset == "digits":
        return _digits(train)
    if training.dataset == "synthetic":
        return _synthetic(training, train)
    if training.data_folder is None:
        raise InputError(
            f"dataset {training.dataset!r} needs data_folder, the folder that holds {HOLDS[training.dataset]}"
        )
    if training.dataset == "imagefolder":
        return _image_folder(training, Path(training.data_folder), train)
    return _cifar10(train, training.data_folder, training.download)


def _synthetic(training: Training, train: bool) -> Images:
    """Return noise: as many images as the training says, or a quarter of that. Each image has its class's own mean."""
    made = torch.Generator().manual_seed(training.seed if train else training.seed + 1)
    images = training.images if train else -(-training.images // 4)
    labels = torch.arange(images) % training.classes
    pixels = torch.randn((images, *training.image_shape), generator=made)
    pixels += (labels / training.classes - 0.5)[:, None, None, None]
    return TensorDataset(pixels, labels)


def _image_folder(training: Training, folder: Path, train: bool) -> Images:
    """Return the pictures under ``train/`` or ``test/``, where each class is a folder; scaled and cut to one shape."""
    import_compiler()
    from torchvision import datasets, transforms  # slow to import, and only needed here

    channels, height, width = training.image_shape
    prepare = [transforms.Resize(max(height, width)), transforms.CenterCrop((height, width)), transforms.ToTensor()]
    if channels == 1:
        prepare.insert(0, transforms.Grayscale())
    normalise = transforms.Normalize([0.5] * channels, [0.25] * channels)
    where = folder / ("train" if train else "test")
    _check_classes(where, training.classes)
    numbers = count(1)

    def is_picture(name: str) -> bool:
        if next(numbers) > MOST_FILES:
            raise InputError(f"{where}: there are more than {MOST_FILES:,} files in it; give a folder of fewer")
        return bool(datasets.folder.is_image_file(name))

    try:
        images: Images = datasets.ImageFolder(
            str(where), transforms.Compose([*prepare, normalise]), is_valid_file=is_picture
        )
    except (FileNotFoundError, OSError) as error:
        raise InputError(f"{where}: no pictures in a folder of each class there ({error})") from error
    return images


def _check_classes(where: Path, classes: int) -> None:
    """Raise InputError unless there are so many folders, of which no file is looked at, in one of a disk."""
    try:
        if is_made_by_kernel(where):
            raise InputError(f"{where} is no folder of a disk: the kernel makes it up; give one with pictures")
        with os.scandir(where) as entries:
            found = sum(entry.is_dir() for entry in entries)
    except OSError as error:
        raise InputError(f"{where}: no pictures in a folder of each class there ({reason(error)})") from error
    if found != classes:
        raise InputError(f"classes is {classes}, but {where} has {found}; give classes = {found}")


def _digits(train: bool) -> Images:
    """Return 1437 of scikit-learn's 1797 handwritten digits, or the other 360: 8x8 grey pixels, scaled to 3x32x32."""
    from sklearn.datasets import load_digits  # slow to import, and only needed here
    from sklearn.model_selection import train_test_split

    pixels, labels = load_digits(return_X_y=True)
    rows = train_test_split(range(len(labels)), test_size=HELD_OUT, random_state=SPLIT_SEED, stratify=labels)
    training_rows, held_out_rows = map(torch.tensor, rows)
    images = interpolate(torch.from_numpy(pixels).float().view(-1, 1, 8, 8), size=32, mode="bilinear")
    mean, std = images[training_rows].mean(), images[training_rows].std()
    chosen = training_rows if train else held_out_rows
    normalised = ((images - mean) / std)[chosen].expand(-1, 3, -1, -1)
    return TensorDataset(normalised, torch.from_numpy(labels)[chosen])


def _cifar10(train: bool, folder: Path | str, download: bool) -> Images:
    """Return the 50,000 training images of CIFAR-10, without augmentation, or its 10,000 test images.

    torchvision's loader compares the files with their published MD5 sums and unpickles them only if they match. Raise
    InputError if they are missing in ``folder`` or do not match.
    """
    import_compiler()
    from torchvision import datasets, transforms  # slow to import, and only needed here

    normalise = transforms.Compose([transforms.ToTensor(), transforms.Normalize(CIFAR10_MEAN, CIFAR10_STD)])
    try:
        found: Images = datasets.CIFAR10(str(folder), train=train, transform=normalise, download=download)
    except (RuntimeError, OSError) as error:
        raise InputError(
            f"{folder}: CIFAR-10 is not there ({error}); give the folder that holds cifar-10-batches-py, which is what "
            "cifar-10-python.tar.gz from https://www.cs.toronto.edu/~kriz/cifar.html unpacks to"
        ) from error
    return found


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
