"""The images to train on: scikit-learn's digits, which come with it, and CIFAR-10 from a folder."""

from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import interpolate
from torch.utils.data import Dataset, TensorDataset

from collectives.errors import InputError
from collectives.workload import DATASETS

Images = Dataset[Any]  # of pairs: image float32 [3, 32, 32], normalised; label 0..9

HELD_OUT = 0.2  # of the digits, in equal shares of every class; the same images for every seed of a training
SPLIT_SEED = 0

# Of the 50,000 training images, per channel, in 0..1.
CIFAR10_MEAN, CIFAR10_STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


def load_images(dataset: str, train: bool, folder: Path | str | None = None, download: bool = False) -> Images:
    """Return the training images of a data set, or the held-out ones that no training sees.

    ``folder`` is where cifar10 lies; ``download`` fetches it there first. Raise InputError for a data set that is not
    known or whose files are missing.
    """
    if dataset == "digits":
        return _digits(train)
    if dataset == "cifar10":
        return _cifar10(train, folder, download)
    raise InputError(f"dataset {dataset!r} is not known; there are {', '.join(DATASETS)}")


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


def _cifar10(train: bool, folder: Path | str | None, download: bool = False) -> Images:
    """Return the 50,000 training images of CIFAR-10, without augmentation, or its 10,000 test images.

    torchvision's loader compares the files with their published MD5 sums and unpickles them only if they match. Raise
    InputError if they are missing in ``folder`` or do not match.
    """
    from torchvision import datasets, transforms  # slow to import, and only needed here

    if folder is None:
        raise InputError("dataset 'cifar10' needs data_folder, the folder that holds cifar-10-batches-py")
    normalise = transforms.Compose([transforms.ToTensor(), transforms.Normalize(CIFAR10_MEAN, CIFAR10_STD)])
    try:
        found: Images = datasets.CIFAR10(str(folder), train=train, transform=normalise, download=download)
    except (RuntimeError, OSError) as error:
        raise InputError(
            f"{folder}: CIFAR-10 is not there ({error}); give the folder that holds cifar-10-batches-py, which is what "
            "cifar-10-python.tar.gz from https://www.cs.toronto.edu/~kriz/cifar.html unpacks to"
        ) from error
    return found
