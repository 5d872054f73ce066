"""Read CIFAR-10 as its authors publish it: the Python version through torchvision, the binary version directly.

Both formats are described at https://www.cs.toronto.edu/~kriz/cifar.html. The Python version is a pickle. torchvision
opens it only if its MD5 is the published one, so no other pickle is ever loaded. An altered copy must be binary.
"""

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from collectives.errors import InputError
from collectives.input_files import is_made_by_kernel, read_bytes
from realcomm.launching.torch_process import import_compiler

CLASSES, SHAPE, PIXELS = 10, (3, 32, 32), 3 * 32 * 32
PYTHON, BINARY = "cifar-10-batches-py", "cifar-10-batches-bin"
SHA1 = {  # from MXNet 1.9, ``gluon.data.vision.CIFAR10``
    "data_batch_1.bin": "aadd24acce27caa71bf4b10992e9e7b2d74c2540",
    "data_batch_2.bin": "c0ba65cce70568cd57b4e03e9ac8d2a5367c1795",
    "data_batch_3.bin": "1dd00a74ab1d17a6e7d73e185b69dbf31242f295",
    "data_batch_4.bin": "aab85764eb3584312d3c7f65fd2fd016e36a258e",
    "data_batch_5.bin": "26e2849e66a845b7f1e4614ae70f4889ae604628",
    "test_batch.bin": "67eb016db431130d61cd03c7ad570b013799c88c",
}


class Cifar10(NamedTuple):
    """Images of CIFAR-10 and their labels, in the order of the files."""

    pixels: npt.NDArray[np.uint8]  # [images, 3, 32, 32]: red, green, blue
    labels: npt.NDArray[np.int64]  # [images], 0 to 9


def find_layout(folder: Path) -> tuple[str, Path]:
    """Return the name and the path of the published folder, which is ``folder`` or a folder in it.

    Raise InputError if neither exists.
    """
    for layout in (PYTHON, BINARY) if not is_made_by_kernel(folder) else ():
        for where in (folder / layout, folder):
            if where.name == layout and where.is_dir():
                return layout, where
    raise InputError(
        f"{folder}: CIFAR-10 not found; pass the folder that contains {PYTHON} or {BINARY}, unpacked from "
        "cifar-10-python.tar.gz or cifar-10-binary.tar.gz of https://www.cs.toronto.edu/~kriz/cifar.html"
    )


@lru_cache(maxsize=2)
def read_cifar10(folder: Path, train: bool, verify: bool = True) -> Cifar10:
    """Return the training images, or the test images.

    Raise InputError if a file is missing, malformed, or differs from the published one. ``verify=False`` accepts
    altered binary files.
    """
    layout, where = find_layout(folder)
    if layout == PYTHON:
        import_compiler()
        from torchvision.datasets import CIFAR10  # slow to import, and only needed here

        try:
            images = CIFAR10(str(where.parent), train=train)
        except RuntimeError as error:
            raise InputError(
                f"{where} differs from the published files; to train on an altered copy, unpack it as {BINARY} and set "
                "`verify = false`"
            ) from error
        return Cifar10(images.data.transpose(0, 3, 1, 2), np.array(images.targets))
    files = [where / name for name in SHA1 if name.startswith("data" if train else "test")]
    pixels, labels = (np.concatenate(part) for part in zip(*(_read(file, verify) for file in files), strict=True))
    return Cifar10(pixels.reshape(-1, *SHAPE), labels.astype(np.int64))


def find_altered(folder: Path) -> list[str]:
    """Return a sentence per binary file that differs from the published one. Raise InputError if a file is missing.

    The list is empty for the Python version, because ``read_cifar10`` rejects altered copies of the Python version.
    """
    layout, where = find_layout(folder)
    files = [where / name for name in SHA1] if layout == BINARY else []
    return [f"{file} differs from the published file" for file in files if _is_altered(file, read_bytes(file))]


def _is_altered(file: Path, content: bytes) -> bool:
    return hashlib.sha1(content, usedforsecurity=False).hexdigest() != SHA1[file.name]


def _read(file: Path, verify: bool) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    content = read_bytes(file)
    if verify and _is_altered(file, content):
        raise InputError(f"{file} differs from the published file; set verify = false to train on it")
    if not content or len(content) % (1 + PIXELS):
        raise InputError(f"{file} is truncated: {len(content)} bytes are not a multiple of {1 + PIXELS}, one image")
    rows = np.frombuffer(content, np.uint8).reshape(-1, 1 + PIXELS)
    for wrong in np.flatnonzero(rows[:, 0] >= CLASSES)[:1].tolist():
        raise InputError(f"{file}: the label of image {wrong} must be from 0 to {CLASSES - 1}, not {rows[wrong, 0]}")
    return rows[:, 1:], rows[:, 0]
