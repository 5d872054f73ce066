"""Compute the sizes of gradients in backward order, and group them into buckets."""

import json
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from math import isqrt
from pathlib import Path
from typing import NamedTuple

FIRST_BYTES = 1 << 20  # minimum size of the first bucket of DistributedDataParallel
BUCKET_BYTES = 25 << 20  # minimum size of its other buckets, by default (bucket_cap_mb)


class Gradient(NamedTuple):
    """The gradient of one parameter tensor. ``ready`` is the fraction of backward after which it is available."""

    nbytes: int
    ready: float


class Bucket(NamedTuple):
    """Gradients that are synchronized together. ``ready`` is the fraction of backward after which all are available."""

    nbytes: int
    ready: float


def gradients_of(tensors: Sequence[Sequence[int]], work: Sequence[float], item_bytes: int = 4) -> list[Gradient]:
    """Return the gradients in backward order: the last layer first, and within each layer the last tensor first.

    ``tensors`` contains the numbers of elements of each layer's parameter tensors, in forward order. ``work`` is the
    relative time of each layer's backward. A gradient element has ``item_bytes`` bytes.

    >>> gradients_of([(8, 2), (4,)], work=[3.0, 1.0])
    [Gradient(nbytes=16, ready=0.25), Gradient(nbytes=8, ready=1.0), Gradient(nbytes=32, ready=1.0)]
    """
    done = [*accumulate(reversed(work))]
    total = (done[-1] if done else 0) or 1
    return [
        Gradient(elements * item_bytes, until / total)
        for layer, until in zip(reversed(tensors), done, strict=True)
        for elements in reversed(layer)
    ]


def fill_buckets(
    gradients: Sequence[Gradient], bucket_bytes: int = BUCKET_BYTES, first_bytes: int | None = None
) -> list[Bucket]:
    """Return the buckets that the gradients fill in the given order.

    A bucket is closed as soon as it has at least ``bucket_bytes``. The first bucket is closed at ``first_bytes`` if
    that is smaller. As in torch, ``first_bytes`` defaults to 1 MiB if ``bucket_bytes`` is the default, and to
    ``bucket_bytes`` otherwise. The last bucket can have fewer bytes.

    >>> fill_buckets([Gradient(3, 0.1), Gradient(9, 0.5), Gradient(2, 1.0)], bucket_bytes=8, first_bytes=1)
    [Bucket(nbytes=3, ready=0.1), Bucket(nbytes=9, ready=0.5), Bucket(nbytes=2, ready=1.0)]
    """
    first = first_bytes or (FIRST_BYTES if bucket_bytes == BUCKET_BYTES else bucket_bytes)
    buckets: list[Bucket] = []
    nbytes, ready = 0, 0.0
    for gradient in gradients:
        nbytes, ready = nbytes + gradient.nbytes, max(ready, gradient.ready)
        if nbytes >= (bucket_bytes if buckets else min(first, bucket_bytes)):
            buckets.append(Bucket(nbytes, ready))
            nbytes = 0
    if nbytes:
        buckets.append(Bucket(nbytes, ready))
    return buckets


RESNETS = ("resnet18", "resnet34", "resnet50")
STEMS = ("imagenet", "cifar")  # 7x7 with stride 2 and pooling; 3x3 without either, for images of 32x32
PROFILES = Path(__file__).parent.parent / "model_profiles"
PROFILED_SIZE, PROFILED_CLASSES = 224, 1000  # of the profiles


@lru_cache
def resnet_gradients(name: str, classes: int, stem: str = "imagenet", size: int = 32) -> tuple[Gradient, ...]:
    """Return the gradients of a ResNet in backward order, from the last layer to the first.

    Images have ``size`` x ``size`` pixels. The time of a layer's backward is proportional to its multiplications.
    """
    layers = [layer for layer in json.loads((PROFILES / f"{name}.json").read_text())["layers"] if layer[3]]
    tensors, work = [tuple(sizes) for _, _, _, sizes, *_ in layers], list[int]()
    if stem == "cifar":
        tensors[0] = (tensors[0][0] * 3**2 // 7**2,)
    features = tensors[-1][0] // PROFILED_CLASSES
    tensors[-1] = features * classes, classes
    for (_, kind, _, profiled, flops, *_), sizes in zip(layers, tensors, strict=True):
        pixels = flops // (2 * profiled[0]) if kind == "Conv2d" else 0
        if pixels:
            halvings = (PROFILED_SIZE // isqrt(pixels)).bit_length() - 1
            side = -(-size // 2 ** (max(0, halvings - 2) if stem == "cifar" else halvings))
            pixels = side**2
        work.append(sizes[0] * (1 if kind == "Linear" else pixels))
    return tuple(gradients_of(tensors, work))
