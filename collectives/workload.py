"""A data-parallel training: its model, its data, its gradient sync, and how long a rank computes in a step."""

from dataclasses import dataclass
from pathlib import Path

from collectives.checks import check_number, check_path, check_whole_number
from collectives.declaration import Algorithm
from collectives.elements import ITEM_BYTES
from collectives.errors import InputError
from collectives.quoting import quote
from collectives.recipe import Recipe, check_known

# Trainable parameters with ten classes, as torchvision builds the model; a test holds them against it.
MODEL_PARAMETERS = {"resnet18": 11_181_642, "resnet34": 21_289_802}
DATASETS = ("digits", "cifar10")


@dataclass(frozen=True)
class ComputePhases:
    """Seconds that one rank computes in a training step, communication apart. Raises InputError for a time below 0.

    >>> round(ComputePhases(forward=0.1, backward=0.2, optimizer=0.05).total, 9)
    0.35
    """

    forward: float
    backward: float
    optimizer: float

    def __post_init__(self) -> None:
        for name in ("forward", "backward", "optimizer"):
            check_number(name, getattr(self, name), "seconds", at_least=0)

    def times(self, factor: float) -> "ComputePhases":
        """Return the phases of a rank that takes so many times as long."""
        return ComputePhases(factor * self.forward, factor * self.backward, factor * self.optimizer)

    @property
    def total(self) -> float:
        """Seconds of all three phases."""
        return self.forward + self.backward + self.optimizer


@dataclass(frozen=True, repr=False)
class Training(Recipe):
    """A data-parallel training. ``gradient_sync`` is an all_reduce algorithm, or None for torch's own DDP.

    What it learns by are the keys of a Recipe.

    Raises InputError for a model or data set that is not known, and numbers that no training can have.

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
    data_folder: Path | str | None = None  # where cifar10 lies
    compute: ComputePhases | None = None  # None: from calibration
    checkpoints: Path | str | None = None  # the folder in which a run keeps them, relative to the working directory
    checkpoint_every: int = 0  # steps; 0: at the end of each epoch only

    def __post_init__(self) -> None:
        super().__post_init__()
        sync: object = self.gradient_sync
        if sync is not None and not isinstance(sync, Algorithm):
            example = "for example find_algorithm('all_reduce/ring')"
            raise InputError(f"gradient_sync is {quote(sync)}; give an Algorithm, {example}")
        check_known("model", self.model, MODEL_PARAMETERS)
        check_known("dataset", self.dataset, DATASETS)
        check_whole_number("batch_size", self.batch_size, at_least=1)
        check_whole_number("epochs", self.epochs, at_least=1)
        check_whole_number("seed", self.seed, at_least=0)
        for name in ("data_folder", "checkpoints"):
            if getattr(self, name) is not None:
                check_path(name, getattr(self, name))
        if check_whole_number("checkpoint_every", self.checkpoint_every, at_least=0) and self.checkpoints is None:
            raise InputError("checkpoint_every says how often, and checkpoints is to say in which folder; give it too")
        compute: object = self.compute
        if compute is not None and not isinstance(compute, ComputePhases):
            raise InputError(
                f"compute is {quote(compute)}; give ComputePhases, or None to take them from a calibration"
            )

    def __repr__(self) -> str:
        return f"<Training of {self.model} on {self.dataset}, gradient sync {self.sync_name}>"

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
        raise InputError(f"training is {quote(training)}; give a collectives.Training")
    if steps is not None:
        check_whole_number("steps", steps, at_least=1)
