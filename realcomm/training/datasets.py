"""Load labeled images for training, and select each rank's share."""

import ctypes
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from functools import lru_cache
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import interpolate, pad
from torch.utils.data import BatchSampler, DataLoader, Dataset, DistributedSampler, Subset, TensorDataset

from collectives.budget import Gigabyte, check_read
from collectives.errors import InputError
from collectives.input_files import is_made_by_kernel, reason
from collectives.training.workload import Training
from realcomm.launching.group import own_device
from realcomm.launching.torch_process import import_compiler
from realcomm.training.rank_result import count_steps
from realcomm.training.stopwatch import Stopwatch

# pairs: a normalized float32 image of the training's image_shape, and a label from 0 to classes - 1
Images = Dataset[Any]
HELD_OUT = 0.2  # share of the digits, equal in every class; the same images for every seed
SPLIT_SEED = 0

# CIFAR-10: its classes, and mean and standard deviation of the 50,000 training images, per channel, scaled to 0..1.
CIFAR10_CLASSES = 10
CIFAR10_MEAN, CIFAR10_STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
TEST_BATCH_SIZE = 256  # affects only speed
Batch = tuple[torch.Tensor, torch.Tensor]  # images float32 [batch, 3, 32, 32], labels int64 [batch]


def load_images(training: Training, train: bool) -> Images:
    """Return the training images, or the held-out images if ``train`` is False.

    If no ``data_folder`` is set, synthetic images replace CIFAR-10. Raise InputError if the data set's files are
    missing, do not fit the training, or have too few images.
    """
    if training.dataset == "synthetic" or (training.dataset == "cifar10" and training.data_folder is None):
        return _draw_images(training, train)
    return _take(_read_images(training, train), training, train)


def _read_images(training: Training, train: bool) -> Images:
    if training.dataset == "digits":
        return _digits(train)
    if training.dataset == "imagefolder":
        if training.data_folder is None:
            raise InputError("dataset 'imagefolder' needs data_folder, the directory that contains train/ and test/")
        return _image_folder(training, Path(training.data_folder), train)
    return _cifar10(training, train)


def _take(images: Images, training: Training, train: bool) -> Images:
    """Return as many images as ``training`` requests, evenly spaced, because folders list images class by class."""
    available = len(images)  # type: ignore[arg-type]
    if training.images is None:
        return images
    if train and training.images > available:
        raise InputError(
            f"images is {training.images}, but {training.dataset} has {available}; use at most {available}"
        )
    count = training.images if train else min(available, -(-training.images // 4))
    return Subset(images, [number * available // count for number in range(count)])


def describe_images(training: Training) -> list[str]:
    """Return a note for the user if synthetic images replace CIFAR-10, otherwise an empty list."""
    if training.dataset != "cifar10" or training.data_folder is not None:
        return []
    return [
        f"dataset cifar10 without data_folder: {training.drawn} synthetic images of its shape are used, and "
        "the accuracy is meaningless; set training.data_folder to the directory of your copy"
    ]


def _draw_images(training: Training, train: bool) -> Images:
    """Return synthetic images whose mean differs by class. Held-out images are a quarter as many as training images."""
    images = training.drawn if train else -(-training.drawn // 4)
    seed = training.seed if train else training.seed + 1
    return _draw(training.image_shape, images, training.classes, seed, as_cifar10=training.dataset == "cifar10")


@lru_cache(maxsize=2)  # training and held-out images, shared by trainings of one process
def _draw(shape: tuple[int, ...], images: int, classes: int, seed: int, as_cifar10: bool) -> Images:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(images) % classes
    if as_cifar10:
        coded = torch.randint(0, 180, (images, *shape), generator=generator, dtype=torch.uint8)
        coded += (70 * labels / classes).to(torch.uint8)[:, None, None, None]
        return PixelImages(coded, labels)
    pixels = torch.randn((images, *shape), generator=generator)
    pixels += (labels / classes - 0.5)[:, None, None, None]
    return TensorDataset(pixels, labels)


def _image_folder(training: Training, folder: Path, train: bool) -> Images:
    """Return the images in ``train/`` or ``test/``, scaled and cropped to one shape. Each class is a subfolder."""
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
        check_read(where, next(numbers), Gigabyte.PICTURES, "files")
        return bool(datasets.folder.is_image_file(name))

    try:
        images: Images = datasets.ImageFolder(
            str(where), transforms.Compose([*prepare, normalise]), is_valid_file=is_picture
        )
    except (FileNotFoundError, OSError) as error:
        raise InputError(f"{where} must have a directory of images for each class ({error})") from error
    return images


def _check_classes(where: Path, classes: int) -> None:
    try:
        if is_made_by_kernel(where):
            raise InputError(f"{where} is generated by the kernel; pass a directory with images")
        with os.scandir(where) as entries:
            folders = sum(entry.is_dir() for entry in entries)
    except OSError as error:
        raise InputError(f"{where} must have a directory of images for each class ({reason(error)})") from error
    if folders != classes:
        raise InputError(f"classes is {classes}, but {where} has {folders} directories; set classes = {folders}")


@lru_cache(maxsize=2)  # training and held-out images, which each evaluation needs
def _digits(train: bool) -> Images:
    """Return scikit-learn's handwritten digits, scaled from 8x8 to 3x32x32: 1437 to train on, or 360 held out."""
    from sklearn.datasets import load_digits  # slow to import, and only needed here
    from sklearn.model_selection import train_test_split

    pixels, labels = load_digits(return_X_y=True)
    rows = train_test_split(range(len(labels)), test_size=HELD_OUT, random_state=SPLIT_SEED, stratify=labels)
    training_rows, held_out_rows = map(torch.tensor, rows)
    images = interpolate(torch.from_numpy(pixels).float().view(-1, 1, 8, 8), size=32, mode="bilinear")
    mean, std = images[training_rows].mean(), images[training_rows].std()
    chosen = training_rows if train else held_out_rows
    normalized = ((images - mean) / std)[chosen].expand(-1, 3, -1, -1)
    return TensorDataset(normalized, torch.from_numpy(labels)[chosen])


def _cifar10(training: Training, train: bool) -> Images:
    if training.classes < CIFAR10_CLASSES:
        raise InputError(
            f"classes is {training.classes}, but cifar10 has {CIFAR10_CLASSES}; set classes = {CIFAR10_CLASSES}"
        )
    return _read_cifar10(Path(training.data_folder or "."), train, training.download)


@lru_cache(maxsize=2)  # training and held-out images
def _read_cifar10(folder: Path, train: bool, download: bool) -> Images:
    """Return CIFAR-10's images. torchvision unpickles only files that have the published MD5."""
    import_compiler()
    from torchvision.datasets import CIFAR10  # slow to import, and only needed here

    root = folder.parent if folder.name == CIFAR10.base_folder else folder
    is_there = (root / CIFAR10.base_folder).is_dir()
    if not is_there and not download:
        raise InputError(
            f"{folder}: CIFAR-10 not found; pass the folder that contains {CIFAR10.base_folder}, unpacked from "
            "cifar-10-python.tar.gz of https://www.cs.toronto.edu/~kriz/cifar.html, or set download = true"
        )
    try:
        files = CIFAR10(str(root), train, download=not is_there)
    except (RuntimeError, OSError) as error:
        problem = f"{folder}: CIFAR-10 cannot be downloaded: {error}"
        if is_there:
            problem = f"{root / CIFAR10.base_folder} is not the published CIFAR-10; replace it with the published files"
        raise InputError(problem) from error
    return PixelImages(torch.from_numpy(files.data).permute(0, 3, 1, 2), torch.tensor(files.targets))


class PixelImages(Dataset[Any]):
    """CIFAR-10's images, uint8 [images, 3, 32, 32], normalized on access."""

    def __init__(self, pixels: torch.Tensor, labels: torch.Tensor) -> None:
        self._pixels, self._labels = pixels, labels.tolist()
        self._mean, self._std = torch.tensor(CIFAR10_MEAN)[:, None, None], torch.tensor(CIFAR10_STD)[:, None, None]

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self._pixels[index].float().div_(255).sub_(self._mean).div_(self._std), self._labels[index]


class Augmented(Dataset[Any]):
    """The images of one epoch with random crops and flips. An image is the same on all ranks and on each access.

    Images are padded with zeros after normalization, so the padding has the mean color.
    """

    def __init__(self, dataset: Images, training: Training, epoch: int) -> None:
        self._dataset, self._pad = dataset, training.random_crop
        images = len(dataset)  # type: ignore[arg-type]
        drawn = np.random.default_rng((training.seed, epoch))
        self._corners = drawn.integers(0, 2 * self._pad + 1, (images, 2))
        self._mirrored = drawn.random(images) < (0.5 if training.flip else 0.0)

    def __len__(self) -> int:
        return len(self._mirrored)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, Any]:
        image, label = self._dataset[index]
        if self._pad:
            top, left = self._corners[index].tolist()
            height, width = image.shape[-2:]
            image = pad(image, (self._pad,) * 4)[:, top : top + height, left : left + width]
        return image.flip(-1) if self._mirrored[index] else image, label


class Shard:
    """One rank's batches over all epochs. In each epoch, every image goes to at most one rank.

    Each epoch has a new random order. All batches are full, so that the mean over ranks is the mean over their joint
    batch. The last images of an epoch, fewer than ``world_size * batch_size``, are skipped. They differ from epoch to
    epoch.
    """

    def __init__(self, training: Training, rank: int, world_size: int, steps: int | None = None) -> None:
        """Use the batches of all epochs, but at most ``steps``. Raise InputError if the images do not fill a batch."""
        dataset = load_images(training, train=True)
        self.images = len(dataset)  # type: ignore[arg-type]
        self.steps_per_epoch, self.steps = count_steps(training, lambda: self.images, world_size, steps)
        self.rank, self.world_size, self.epochs = rank, world_size, training.epochs
        self._dataset, self._training = dataset, training
        self._sampler: DistributedSampler[Any] = DistributedSampler(
            dataset, world_size, rank, seed=training.seed, drop_last=True
        )

    @property
    def prefetched(self) -> int:
        """The number of batches that loader processes may load ahead."""
        return self._training.prefetched

    def epochs_after(self, steps: int) -> float:
        return steps / self.steps_per_epoch

    def epoch_of(self, step: int) -> int:
        return step // self.steps_per_epoch

    def ends_epoch(self, step: int) -> bool:
        """Return whether a step is the last step of an epoch or of the training run."""
        return (step + 1) % self.steps_per_epoch == 0 or step + 1 == self.steps

    def __iter__(self) -> Iterator[Batch]:
        return self.batches()

    def batches(self, first: int = 0) -> Iterator[Batch]:
        """Yield the batches from step ``first`` on, without loading earlier batches."""
        return islice(self._all(first), self.steps - first)

    def _all(self, first: int) -> Iterator[Batch]:
        start, skipped = divmod(first, self.steps_per_epoch)
        for epoch in range(start, self.epochs):
            self._sampler.set_epoch(epoch)
            rows = list(BatchSampler(self._sampler, self._training.batch_size, drop_last=True))
            images = self._dataset
            if self._training.random_crop or self._training.flip:
                images = Augmented(images, self._training, epoch)
            yield from load_batches(images, rows[skipped if epoch == start else 0 :], self._training)


def load_batches(dataset: Images, rows: list[list[int]], training: Training) -> Iterator[Batch]:
    """Yield batches on this rank's device. Each entry of ``rows`` lists the indices of one batch's images.

    Torch's global random state, which models use, does not change. Loader processes end with this process.
    """
    device, ahead = own_device(), dict[str, Any]()
    if training.num_workers:
        multiprocessing.current_process().daemon = False  # otherwise a rank could not start processes
        ahead = {"num_workers": training.num_workers, "prefetch_factor": training.prefetch_factor}
        ahead |= {"multiprocessing_context": "fork", "worker_init_fn": _end_with_parent}
    pinned = training.pin_memory and device.type == "cuda"
    loader = DataLoader(dataset, batch_sampler=rows, generator=torch.Generator(), pin_memory=pinned, **ahead)
    for images, labels in loader:
        yield images.to(device, non_blocking=pinned), labels.to(device, non_blocking=pinned)


def _end_with_parent(worker: int) -> None:
    """Let Linux end this loader process when its rank ends, even if the rank is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        pr_set_pdeathsig = 1  # of <linux/prctl.h>
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def load_next(batches: Iterator[Batch], watch: Stopwatch) -> Batch:
    """Begin a training step and return its batch. The loading is timed as the step's first phase."""
    watch.start()
    with watch.phase("loading"):
        return next(batches)


def held_out_batches(training: Training, rank: int, world_size: int) -> Iterator[Batch]:
    """Yield this rank's share of the held-out images. Every image goes to exactly one rank."""
    dataset = load_images(training, train=False)
    share = Subset(dataset, range(rank, len(dataset), world_size))  # type: ignore[arg-type]
    yield from load_batches(share, list(BatchSampler(range(len(share)), TEST_BATCH_SIZE, drop_last=False)), training)
