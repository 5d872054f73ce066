"""A data-parallel training: its model, its data, its gradient sync, and how long a rank computes in a step."""

from dataclasses import dataclass

from collectives.checks import check_whole_number
from collectives.declaration import Algorithm
from collectives.elements import ITEM_BYTES
from collectives.errors import InputError

# Trainable parameters with ten classes, as torchvision builds the model; a test holds them against it.
MODEL_PARAMETERS = {"resnet18": 11_181_642}
DATASETS = ("digits", "cifar10")


@dataclass(frozen=True)
class ComputePhases:
    """Seconds that one rank computes in a training step, communication apart.

    >>> round(ComputePhases(forward=0.1, backward=0.2, optimizer=0.05).total, 9)
    0.35
    """

    forward: float
    backward: float
    optimizer: float

    @property
    def total(self) -> float:
        """Seconds of all three phases."""
        return self.forward + self.backward + self.optimizer


@dataclass(frozen=True)
class Training:
    """A data-parallel training. ``gradient_sync`` is an all_reduce algorithm, or None for torch's own DDP.

    >>> from collectives import find_algorithm
    >>> Training(find_algorithm("all_reduce/ring"), batch_size=64).gradient_bytes
    44726568
    """

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
        """The label of the gradient sync; ``ddp`` for torch's own."""
        return self.gradient_sync.label if self.gradient_sync else "ddp"


def check_training(training: object, steps: object = None) -> None:
    """Raise InputError unless ``training`` is a Training and ``steps`` a number of steps, or None for the usual one.

    >>> check_training("resnet18")
    Traceback (most recent call last):
    collectives.errors.InputError: training is 'resnet18'; give a collectives.Training
    """
    if not isinstance(training, Training):
        raise InputError(f"training is {training!r}; give a collectives.Training")
    sync: object = training.gradient_sync
    if sync is not None and not isinstance(sync, Algorithm):
        raise InputError(f"gradient_sync is {sync!r}; give an Algorithm, for example find_algorithm('all_reduce/ring')")
    if steps is not None:
        check_whole_number("steps", steps, at_least=1)
