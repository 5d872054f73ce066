"""Whether a batch fits on a GPU: what a replica and the activations of its samples take at least.

Every published training that this package knows fits by it (tests/test_renting_plan.py); one that does not is refused.
"""

from typing import NamedTuple

from collectives.units import parse_size
from simcomm.cluster.hardware_parts import find_part
from simcomm.scaling.descriptions import is_half
from simcomm.scaling.models import ModelProfile

WEIGHTS, GRADIENTS, BUCKETS = 4, 4, 4  # bytes a parameter; DistributedDataParallel keeps gradients in buckets too
STATES = {"sgd": 4, "adamw": 8}  # of the optimizer: momentum; two moments


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
    """Return what a replica of a model takes. Half precision halves the activations: weights stay in 32 bits."""
    each = WEIGHTS + GRADIENTS + BUCKETS + STATES[optimizer]
    return Footprint(model.parameters * each, model.activations * (2 if is_half(precision) else 4))


def gpu_memory(gpu: str) -> float | None:
    """Return the bytes of memory of a GPU of the hardware catalogue; None where it does not say.

    >>> gpu_memory("RTX 4090")
    24000000000.0
    """
    figure = find_part("GPU", gpu).get("memory")
    return None if figure is None else float(parse_size(figure.value))
