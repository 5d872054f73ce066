"""``TrainingJob``: a training as it is spread over devices, whoever asks: a prediction, a plan, a published series."""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from collectives.records.model_profile import ModelProfile
from collectives.training.parallelism import Parallelism

HALF = ("fp16", "float16", "bf16", "bfloat16", "half", "mixed", "mixed precision", "amp")
WHOLE = ("fp32", "float32", "tf32", "single", "full", "")


def is_half(precision: str) -> bool:
    """Return whether a precision computes in 16 bits; what is none of ``WHOLE`` either is taken as 32 bits.

    >>> is_half("AMP"), is_half("TF32")
    (True, False)
    """
    return precision.lower() in HALF


@dataclass(frozen=True)
class TrainingJob:
    """What is trained, and how it is spread. ``batch`` are samples, or tokens, of each device of the data axis.

    >>> from collectives.records.model_profile import find_model_profile
    >>> TrainingJob(find_model_profile("gpt2"), 8, Parallelism(tensor=2)).on(8).parallelism.data
    4
    """

    model: ModelProfile
    batch: float  # between two exchanges of gradients, all microbatches together
    parallelism: Parallelism = field(default_factory=Parallelism)
    precision: str = "float32"
    optimizer: str = "sgd"
    loader: str | None = None  # one of LOADERS; None: batches are copied, and made as fast as they are needed
    loader_rate: float | None = None  # samples/s that a host's loaders make; None: its cores', by the kind of loader
    variable_batches: bool = False  # of unequal work, as sentences of any length
    framework: str = "other"

    @property
    def item(self) -> int:
        """Bytes of an element of activations, and of gathered parameters."""
        return 2 if is_half(self.precision) or self.parallelism.half_weights else 4

    @property
    def microbatch(self) -> float:
        """Samples of a microbatch."""
        return self.batch / self.parallelism.pieces

    def on(self, devices: int, host: int | None = None) -> "TrainingJob":
        """Return it for so many devices, ``host`` of them on each. Raise InputError for a mesh of another number."""
        return replace(self, parallelism=self.parallelism.for_devices(devices, host))


class MeshDevice(NamedTuple):
    """One device of a mesh, as far as it is known."""

    name: str = "a device"
    memory: float | None = None  # bytes; None: not checked
    memory_bandwidth: float = 0.0  # bytes/s of a GPU whose copies and stragglers are reckoned with; 0: of neither
    cores: int = 0  # of its whole host, of whose GPUs some may not be used; 0: so many a GPU that is used as is usual


ANY_DEVICE = MeshDevice()
