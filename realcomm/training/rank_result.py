"""Define one rank's result of a training run, and count the run's steps. The launcher and the ranks use this module."""

from collections.abc import Callable
from dataclasses import dataclass

from collectives.checks import check_whole_number
from collectives.errors import InputError
from collectives.records.spans import Span
from collectives.training.workload import TO_TRAIN_ON, Training


@dataclass(frozen=True)
class RankResult:
    """One rank's result of a training run: its spans, the run's facts, and a digest of the final weights."""

    spans: list[Span]
    facts: dict[str, float]  # equal on all ranks, except the measurements of rank 0 alone
    digest: str  # SHA-256 of its final weights


def known_images(training: Training) -> int | None:
    """Return the number of training images, or None if files must be read to count them.

    >>> known_images(Training(None))
    1437
    """
    if training.dataset == "synthetic" or (training.dataset == "cifar10" and training.data_folder is None):
        return training.drawn
    return TO_TRAIN_ON["digits"] if training.dataset == "digits" and training.images is None else None


def count_steps(training: Training, images: Callable[[], int], world_size: int, steps: int | None) -> tuple[int, int]:
    """Return the number of steps per epoch, and the total number of steps in all epochs.

    If ``steps`` is given, the total is at most ``steps``. ``images`` returns the number of training images. Raise
    InputError if they do not fill a single step.

    >>> count_steps(Training(None, batch_size=32, epochs=3), lambda: 1437, world_size=2, steps=None)
    (22, 66)
    """
    check_whole_number("epochs", training.epochs, at_least=1)
    if steps is not None:
        check_whole_number("steps", steps, at_least=1)
    number = images()
    in_epoch = number // world_size // training.batch_size
    available = training.epochs * in_epoch
    if available < 1:
        needed = world_size * training.batch_size
        raise InputError(
            f"batch_size {training.batch_size} on {world_size} ranks needs {needed} images per step, but "
            f"{training.dataset} has only {number}; set batch_size to at most {number // world_size}"
        )
    return in_epoch, available if steps is None else min(steps, available)
