"""A training job, as both wings name it."""

from dataclasses import dataclass

from collectives.declaration import Algorithm
from collectives.elements import ITEM_BYTES
from collectives.errors import InputError

# Trainable parameters with ten classes, as torchvision builds the model; a test holds them against it.
MODEL_PARAMETERS = {"resnet18": 11_181_642}
DATASETS = ("digits", "cifar10")


@dataclass(frozen=True)
class ComputePhases:
    """Seconds that one rank computes in a training step, communication apart."""

    forward: float
    backward: float
    optimizer: float

    @property
    def total(self) -> float:
        return self.forward + self.backward + self.optimizer


@dataclass(frozen=True)
class Training:
    """A data-parallel training job. ``gradient_sync`` is an all_reduce algorithm, or None for torch's own DDP."""

    gradient_sync: Algorithm | None
    model: str = "resnet18"
    dataset: str = "digits"
    batch_size: int = 32  # per rank
    epochs: int = 3
    seed: int = 0
    learning_rate: float = 0.002
    scale_learning_rate: bool = False  # multiply it by world_size
    data_folder: str | None = None  # where cifar10 lies
    compute: ComputePhases | None = None  # None: from calibration

    @property
    def gradient_bytes(self) -> int:
        """Bytes of all gradients, as float32."""
        return MODEL_PARAMETERS[self.model] * ITEM_BYTES["float32"]

    @property
    def sync_name(self) -> str:
        return self.gradient_sync.label if self.gradient_sync else "ddp"


def check_training(training: object) -> None:
    """Raise InputError unless ``training`` is a Training.

    >>> check_training("resnet18")
    Traceback (most recent call last):
    collectives.errors.InputError: training is 'resnet18'; give a collectives.Training
    """
    if not isinstance(training, Training):
        raise InputError(f"training is {training!r}; give a collectives.Training")
