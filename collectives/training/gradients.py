"""Compute the sizes of gradients in backward order, the layers of ResNets, and gradient buckets.

The layers are those of He et al., Deep Residual Learning for Image Recognition, table 1
(https://arxiv.org/abs/1512.03385), as torchvision builds them. A test compares the parameters with torchvision's.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

FIRST_BYTES = 1 << 20  # minimum size of the first bucket of DistributedDataParallel
BUCKET_BYTES = 25 << 20  # minimum size of its other buckets, by default (bucket_cap_mb)


class Gradient(NamedTuple):
    """The gradient of one parameter tensor. ``ready`` is the share of backward after which it is available."""

    nbytes: int
    ready: float


class Bucket(NamedTuple):
    """Gradients that are synchronized together. ``ready`` is the share of backward after which all are ready."""

    nbytes: int
    ready: float


def gradients_of(tensors: Sequence[Sequence[int]], work: Sequence[float], item_bytes: int = 4) -> list[Gradient]:
    """Return the gradients in backward order: the last layer first, and within each layer the last tensor first.

    ``tensors`` contains the number of elements of each parameter tensor by layer, in forward order. ``work`` is each
    layer's share of backward, in any unit.

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
    gradients: Sequence[Gradient], bucket_bytes: int = BUCKET_BYTES, first_bytes: int = FIRST_BYTES
) -> list[Bucket]:
    """Group the gradients into buckets, in the given order.

    A bucket is closed as soon as it holds at least ``bucket_bytes`` (the first: ``first_bytes``, if less). The last
    bucket may hold less.

    >>> fill_buckets([Gradient(3, 0.1), Gradient(9, 0.5), Gradient(2, 1.0)], bucket_bytes=8, first_bytes=1)
    [Bucket(nbytes=3, ready=0.1), Bucket(nbytes=9, ready=0.5), Bucket(nbytes=2, ready=1.0)]
    """
    buckets: list[Bucket] = []
    nbytes, ready = 0, 0.0
    for gradient in gradients:
        nbytes, ready = nbytes + gradient.nbytes, max(ready, gradient.ready)
        if nbytes >= (bucket_bytes if buckets else min(first_bytes, bucket_bytes)):
            buckets.append(Bucket(nbytes, ready))
            nbytes = 0
    if nbytes:
        buckets.append(Bucket(nbytes, ready))
    return buckets


BLOCKS = {
    "resnet18": (2, 2, 2, 2),
    "resnet34": (3, 4, 6, 3),
    "resnet50": (3, 4, 6, 3),
}  # residual blocks of each of four stages
EXPANSION = {"resnet18": 1, "resnet34": 1, "resnet50": 4}  # output channels of a block, divided by its width
WIDTHS = (64, 128, 256, 512)
STEMS = ("imagenet", "cifar")  # 7x7 with stride 2 and pooling; 3x3 without either, for images of 32x32


class WeightLayer(NamedTuple):
    """A layer with weights. It has the sizes of its parameter tensors and the multiplications of its forward pass."""

    parameters: tuple[int, ...]
    work: int


def resnet_layers(name: str, classes: int, stem: str = "imagenet", size: int = 32) -> list[WeightLayer]:
    """Return the layers of a ResNet for images of 3 x ``size`` x ``size`` pixels, from first to last.

    >>> sum(sum(layer.parameters) for layer in resnet_layers("resnet18", classes=10))
    11181642
    """
    return [*_resnet_layers(name, classes, stem, size)]


def _resnet_layers(name: str, classes: int, stem: str, size: int) -> Iterator[WeightLayer]:
    expansion, inputs = EXPANSION[name], 64
    side = size if stem == "cifar" else -(-size // 2)
    yield _convolution(3, 64, 3 if stem == "cifar" else 7, side)
    yield WeightLayer((64, 64), 0)
    side = side if stem == "cifar" else -(-side // 2)
    for stage, (width, blocks) in enumerate(zip(WIDTHS, BLOCKS[name], strict=True)):
        for block in range(blocks):
            before, side = side, -(-side // 2) if stage and not block else side
            yield from _block(inputs, width, expansion, before, side)
            if not block and (stage or expansion > 1):  # if the shape changes, the shortcut is a convolution
                yield _convolution(inputs, width * expansion, 1, side)
                yield WeightLayer((width * expansion,) * 2, 0)
            inputs = width * expansion
    yield WeightLayer((inputs * classes, classes), inputs * classes)


def _block(inputs: int, width: int, expansion: int, before: int, side: int) -> Iterator[WeightLayer]:
    """Yield the layers of a residual block; ``before`` and ``side`` are its input and output size in pixels."""
    if expansion == 1:
        kernels = ((inputs, width, 3, side), (width, width, 3, side))
    else:  # the middle convolution has the stride
        outputs = width * expansion
        kernels = ((inputs, width, 1, before), (width, width, 3, side), (width, outputs, 1, side))  # type: ignore[assignment]
    for fan_in, made, kernel, pixels in kernels:
        yield _convolution(fan_in, made, kernel, pixels)
        yield WeightLayer((made, made), 0)


def _convolution(inputs: int, outputs: int, kernel: int, side: int) -> WeightLayer:
    weights = inputs * outputs * kernel * kernel
    return WeightLayer((weights,), weights * side * side)


def count_parameters(name: str, classes: int, stem: str = "imagenet") -> int:
    """Return the number of parameters of a ResNet.

    >>> count_parameters("resnet34", classes=10)
    21289802
    """
    return sum(sum(layer.parameters) for layer in resnet_layers(name, classes, stem))


def gradients_in_order(name: str, classes: int, stem: str = "imagenet", size: int = 32) -> list[Gradient]:
    """Return the gradients of a ResNet in backward order, from the last layer to the first.

    The share of a layer in backward is its share of the multiplications.
    """
    layers = resnet_layers(name, classes, stem, size)
    return gradients_of([layer.parameters for layer in layers], [layer.work for layer in layers])
