"""Buckets: gradients that travel together, in the order in which backward makes them."""

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

FIRST_BYTES = 1 << 20  # what DistributedDataParallel puts into its first bucket at least ...
BUCKET_BYTES = 25 << 20  # ... and, by its bucket_cap_mb, into the others (docs of torch.nn.parallel)


class Gradient(NamedTuple):
    """A parameter's gradient: its bytes, and the share of backward after which it is there."""

    nbytes: int
    ready: float


class Bucket(NamedTuple):
    """Gradients that travel together: their bytes, and the share of backward after which the last is there."""

    nbytes: int
    ready: float


def gradients_of(tensors: Sequence[Sequence[int]], work: Sequence[float], item_bytes: int = 4) -> list[Gradient]:
    """Return the gradients as backward makes them: of the last layer first, and of a layer its last tensor first.

    ``tensors`` are the elements of each parameter of the layers in the order of forward, ``work`` is the layers' share
    of backward, in any unit.

    >>> gradients_of([(8, 2), (4,)], work=[3.0, 1.0])
    [Gradient(nbytes=16, ready=0.25), Gradient(nbytes=8, ready=1.0), Gradient(nbytes=32, ready=1.0)]
    """
    done = [*accumulate(reversed(work))]
    whole = (done[-1] if done else 0) or 1
    return [
        Gradient(elements * item_bytes, until / whole)
        for layer, until in zip(reversed(tensors), done, strict=True)
        for elements in reversed(layer)
    ]


def fill_buckets(
    gradients: Sequence[Gradient], bucket_bytes: int = BUCKET_BYTES, first_bytes: int = FIRST_BYTES
) -> list[Bucket]:
    """Return the buckets of gradients that come in this order; each is closed by the gradient that fills it.

    >>> fill_buckets([Gradient(3, 0.1), Gradient(9, 0.5), Gradient(2, 1.0)], bucket_bytes=8, first_bytes=1)
    [Bucket(nbytes=3, ready=0.1), Bucket(nbytes=9, ready=0.5), Bucket(nbytes=2, ready=1.0)]
    """
    buckets: list[Bucket] = []
    held, ready = 0, 0.0
    for gradient in gradients:
        held, ready = held + gradient.nbytes, max(ready, gradient.ready)
        if held >= (bucket_bytes if buckets else min(first_bytes, bucket_bytes)):
            buckets.append(Bucket(held, ready))
            held = 0
    if held:
        buckets.append(Bucket(held, ready))
    return buckets
