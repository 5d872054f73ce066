"""Whether a batch can fit on a GPU: what a replica and the activations of its samples take at the very least.

A plan refuses only what cannot run: every published training that this package knows fits by it
(tests/test_renting_plan.py). What a training really keeps is in ``simcomm.parallelism.memory``.
"""

from typing import NamedTuple

from collectives.errors import InputError
from simcomm.parallelism.memory import gpu_memory, state_bytes
from simcomm.scaling.descriptions import is_half
from simcomm.scaling.models import ModelProfile

KEPT = 0.5  # of the elements that a forward pass writes, until backward: in-place and fused layers keep one of two


class Footprint(NamedTuple):
    """Bytes on one GPU: the replica's, and those of each sample that is computed at once."""

    replica: float
    sample: float

    def batch_for(self, memory: float) -> int:
        """Return how many samples fit at once; 0 where not even the replica does.

        >>> Footprint(4e9, 1e8).batch_for(16e9)
        120
        """
        left = memory - self.replica
        return int(left / self.sample) if left > 0 and self.sample else int(left > 0) * 10**9


def footprint(model: ModelProfile, precision: str, optimizer: str) -> Footprint:
    """Return what a replica of a model takes. Half precision halves the activations: weights stay in 32 bits.

    >>> from simcomm.scaling.models import Layer
    >>> footprint(ModelProfile("one", (Layer(1000, 1.0, 500.0),)), "fp16", "adamw")
    Footprint(replica=16000, sample=500.0)
    """
    return Footprint(
        model.parameters * sum(state_bytes(optimizer)), KEPT * model.activations * (2 if is_half(precision) else 4)
    )


def memory_of_gpu(gpu: str) -> float | None:
    """Return the bytes of memory of a GPU of the hardware catalogue; None where it does not say.

    >>> memory_of_gpu("RTX 4090") == 24 * 2**30
    True
    """
    try:
        return gpu_memory(gpu)
    except InputError:
        return None
