"""CIFAR-10 as its authors publish it, for Python or in binary; also a copy that a user has altered.

Both formats: https://www.cs.toronto.edu/~kriz/cifar.html. A file of the first is a pickle. Nothing that one names is
imported or called: it may hold lists, dicts, texts, numbers and arrays of numbers, as the published ones do.
"""

import hashlib
import io
import pickle
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from collectives.errors import InputError
from collectives.input_files import is_made_by_kernel, read_bytes, reason
from collectives.quoting import cut, quote

CLASSES, SHAPE, PIXELS = 10, (3, 32, 32), 3 * 32 * 32
TRAIN, TEST = tuple(f"data_batch_{number}" for number in range(1, 6)), ("test_batch",)
NUMBERS = ("u1", "i1", "i2", "i4", "i8", "u2", "u4", "u8")  # types of numpy
URL = "https://www.cs.toronto.edu/~kriz/cifar.html"


class Cifar10(NamedTuple):
    """Images and what they show, in the order of the files."""

    pixels: npt.NDArray[np.uint8]  # [images, 3, 32, 32]: red, green, blue
    labels: npt.NDArray[np.int64]  # [images], 0 to 9


@dataclass(frozen=True)
class PublishedFolder:
    """A folder as it is published: its name, how its files' names end, and the digest of each."""

    folder: str
    suffix: str
    algorithm: str
    digests: tuple[str, ...]  # of ``TRAIN``, then ``TEST``


# MD5 from torchvision 0.29 (``torchvision.datasets.CIFAR10``), SHA-1 from MXNet 1.9 (``gluon.data.vision.CIFAR10``).
PYTHON = PublishedFolder(
    "cifar-10-batches-py", "", "md5",
    (
        "c99cafc152244af753f735de768cd75f", "d4bba439e000b95fd0a9bffe97cbabec", "54ebc095f3ab1f0389bbae665268c751",
        "634d18415352ddfa80567beed471001a", "482c414d41f54cd18b22e5b47cb7c3cb", "40351d587109b95175f43aff81a1287e",
    ),
)  # fmt: skip
BINARY = PublishedFolder(
    "cifar-10-batches-bin", ".bin", "sha1",
    (
        "aadd24acce27caa71bf4b10992e9e7b2d74c2540", "c0ba65cce70568cd57b4e03e9ac8d2a5367c1795",
        "1dd00a74ab1d17a6e7d73e185b69dbf31242f295", "aab85764eb3584312d3c7f65fd2fd016e36a258e",
        "26e2849e66a845b7f1e4614ae70f4889ae604628", "67eb016db431130d61cd03c7ad570b013799c88c",
    ),
)  # fmt: skip


def read_cifar10(folder: Path, train: bool, verify: bool = True) -> Cifar10:
    """Return the images to train on, or the test images, of a folder that has one of both published ones, or is it.

    Raise InputError that names the file where one is missing or not in its format and, with ``verify``, where one is
    not as it was published.
    """
    layout, where = find_layout(folder)
    files = [where / f"{name}{layout.suffix}" for name in (TRAIN if train else TEST)]
    return _read_files(layout, tuple((file, *_look(file)) for file in files), verify)


def find_altered(folder: Path) -> list[str]:
    """Return which files are not as they were published, in words. Raise InputError for one that cannot be read."""
    layout, where = find_layout(folder)
    names = [f"{name}{layout.suffix}" for name in (*TRAIN, *TEST)]
    return [words for name in names if (words := _describe_difference(layout, where / name, read_bytes(where / name)))]


def find_layout(folder: Path) -> tuple[PublishedFolder, Path]:
    """Return how a folder's files are laid out, and where they are; for Python if both are. Raise InputError."""
    try:
        for layout in (PYTHON, BINARY) if not is_made_by_kernel(folder) else ():
            for where in (folder / layout.folder, folder):
                if (where / f"{TRAIN[0]}{layout.suffix}").exists() or (where.name == layout.folder and where.is_dir()):
                    return layout, where
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise InputError(f"{folder}: {reason(error)}") from error
    raise InputError(
        f"{folder}: CIFAR-10 is not there; give the folder that holds {PYTHON.folder} or {BINARY.folder}, which "
        f"cifar-10-python.tar.gz and cifar-10-binary.tar.gz from {URL} unpack to"
    )


def _look(file: Path) -> tuple[int, int]:
    """Return what of a file's status changes with it. Raise InputError where it is missing."""
    try:
        status = file.stat()
    except OSError as error:
        raise InputError(f"{file}: no such file; CIFAR-10 has {', '.join(TRAIN)} and test_batch") from error
    return status.st_mtime_ns, status.st_size


@lru_cache(maxsize=2)
def _read_files(layout: PublishedFolder, files: tuple[tuple[Path, int, int], ...], verify: bool) -> Cifar10:
    """Return the images of these files, each with its time and size, one after the other."""
    parts = []
    for file, *_ in files:
        content = read_bytes(file)
        if verify and (words := _describe_difference(layout, file, content)):
            raise InputError(f"{words}; give verify = false to train on it as it is")
        parts.append(_parse_binary(file, content) if layout is BINARY else _parse_pickle(file, content))
    pixels, labels = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return Cifar10(pixels, labels)


def _describe_difference(layout: PublishedFolder, file: Path, content: bytes) -> str:
    """Return how a file differs from the published one; nothing where it does not."""
    found = hashlib.new(layout.algorithm, content, usedforsecurity=False).hexdigest()
    published = layout.digests[(*TRAIN, *TEST).index(file.name.removesuffix(layout.suffix))]
    if found == published:
        return ""
    return f"{file} is not as published: its {layout.algorithm.upper()} is {found}, CIFAR-10's is {published}"


def _parse_binary(file: Path, content: bytes) -> Cifar10:
    """Return what a binary file holds: of each image a byte that is its label, and its pixels."""
    if not content or len(content) % (1 + PIXELS):
        raise InputError(
            f"{file} is cut off: it has {len(content)} bytes, no multiple of the {1 + PIXELS} that an image takes"
        )
    rows = np.frombuffer(content, np.uint8).reshape(-1, 1 + PIXELS)
    return _check(file, rows[:, 1:], rows[:, 0])


def _parse_pickle(file: Path, content: bytes) -> Cifar10:
    """Return what a file for Python holds: a dict of ``data``, an array [images, 3072], and ``labels``."""
    try:
        held = _Unpickler(io.BytesIO(content), encoding="bytes").load()
    except InputError as error:
        raise InputError(f"{file}: {error}") from error
    except Exception as error:  # an unpickler raises whatever it stumbles over
        raise InputError(
            f"{file} is no batch of CIFAR-10 for Python: {cut(str(error)) or type(error).__name__}"
        ) from error
    if not isinstance(held, dict):
        raise InputError(f"{file} is no batch of CIFAR-10 for Python: it holds no dict")
    found = {name: held.get(name.encode(), held.get(name)) for name in ("data", "labels")}
    pixels, labels = (each.to_numpy(file) if isinstance(each, _Array) else each for each in found.values())
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.ndim != 2 or pixels.shape[1] != PIXELS:
        raise InputError(f"{file}: data is no array of uint8 with {PIXELS} numbers an image")
    if isinstance(labels, list) and all(type(label) is int and 0 <= label < CLASSES for label in labels):
        labels = np.array(labels, np.int64)
    if not isinstance(labels, np.ndarray) or labels.dtype.kind not in "iu" or labels.ndim != 1:
        raise InputError(f"{file}: labels is no list of whole numbers from 0 to {CLASSES - 1}")
    return _check(file, pixels, labels)


def _check(file: Path, pixels: npt.NDArray[np.uint8], labels: npt.NDArray[Any]) -> Cifar10:
    """Return images with a label each. Raise InputError for other labels."""
    if len(labels) != len(pixels) or not len(pixels):
        raise InputError(f"{file} has {len(pixels)} images and {len(labels)} labels; each image is to have one")
    for wrong in np.flatnonzero((labels < 0) | (labels >= CLASSES))[:1].tolist():
        raise InputError(f"{file}: the label of image {wrong} is {labels[wrong]}; labels are 0 to {CLASSES - 1}")
    return Cifar10(pixels.reshape(-1, *SHAPE), labels.astype(np.int64))


class _Type:
    """What stands for a ``numpy.dtype`` in a pickle: its code, as ``u1``."""

    code: object = None

    def __init__(self, code: object = None, *more: object) -> None:
        self.code = code.decode("latin-1") if isinstance(code, bytes) else code

    def __setstate__(self, state: object) -> None:
        """Take the byte order of numpy's own machines. Raise InputError for the other."""
        if isinstance(state, tuple) and len(state) > 1 and state[1] in (b">", ">"):
            raise InputError("its numbers are big-endian; those of CIFAR-10 are not")


class _Array:
    """What stands for a ``numpy.ndarray`` in a pickle: how it looks, and its bytes."""

    state: tuple[Any, ...] = (None, None, None, None, None)  # version, shape, type, whether by columns, bytes

    def __init__(self, *given: object) -> None:
        """Be made as numpy's own are, by what says nothing of the array yet."""

    def __setstate__(self, state: object) -> None:
        if isinstance(state, tuple) and len(state) == 5:
            self.state = state

    def to_numpy(self, file: Path) -> npt.NDArray[Any]:
        """Return the array. Raise InputError for what none of numbers has."""
        _, shape, kind, by_columns, content = self.state
        code = kind.code if isinstance(kind, _Type) else None
        if code not in NUMBERS or not isinstance(content, bytes | bytearray):
            raise InputError(f"{file} holds an array that is none of whole numbers")
        if len(content) % int(code[1]):
            raise InputError(f"{file} holds an array that is cut off")
        numbers = np.frombuffer(bytes(content), np.dtype(code).newbyteorder("<"))
        if not isinstance(shape, tuple) or any(type(side) is not int or side < 0 for side in shape):
            raise InputError(f"{file} holds an array of no shape")
        if len(shape) > 2 or prod(shape) != numbers.size:
            raise InputError(f"{file} holds an array of shape {quote(shape)} that has {numbers.size} numbers")
        return numbers.reshape(shape, order="F" if by_columns else "C")


class _FromBuffer(_Array):
    """The same as protocol 5 of pickle has it."""

    def __init__(self, content: object, kind: object, shape: object, order: object) -> None:
        self.state = None, shape, kind, order == "F", content


class _Encoded(bytes):
    """What stands for bytes that protocols up to 2 of pickle have as text."""

    def __new__(cls, text: str, encoding: object) -> "_Encoded":
        return super().__new__(cls, text.encode("latin-1"))

    def __setstate__(self, state: object) -> None:
        """Take nothing: bytes have no more to them."""


# Classes, each with a ``__setstate__``: a pickle can change no attribute of theirs.
_KNOWN: dict[str, Any] = {
    f"{module}.{name}": stand_in
    for modules, name, stand_in in (
        (("numpy.core.multiarray", "numpy._core.multiarray"), "_reconstruct", _Array),
        (("numpy.core.numeric", "numpy._core.numeric"), "_frombuffer", _FromBuffer),
        (("numpy",), "ndarray", _Array),
        (("numpy",), "dtype", _Type),
        (("_codecs",), "encode", _Encoded),
    )
    for module in modules
}


class _Unpickler(pickle._Unpickler):
    """An unpickler that knows stand-ins for arrays of numpy and nothing else.

    It is the one written in Python: that of C takes as much memory as a single number of a hostile file says.
    """

    def find_class(self, module: str, name: str) -> Any:
        """Return what stands for a name. Raise InputError for any that CIFAR-10 has no need of."""
        try:
            return _KNOWN[f"{module}.{name}"]
        except KeyError:
            named = quote(f"{module}.{name}")
            raise InputError(f"to read it would execute {named}, which CIFAR-10 never needs") from None
