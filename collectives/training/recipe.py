"""Define the hyperparameters of a training run: optimizer, learning rate, precision, and gradient synchronization."""

from dataclasses import dataclass
from math import cos, pi, sqrt

from collectives.checks import check_bool, check_known, check_number, check_whole_number
from collectives.errors import InputError
from collectives.quoting import quote

OPTIMIZERS = ("sgd", "adamw")
SCHEDULES = ("constant", "linear", "cosine", "step")
PRECISIONS = ("float32", "bf16", "fp16")
SCALINGS = ("linear", "sqrt")
STEP_DECAY, STEP_SHARE = 0.1, 1 / 3  # schedule "step": a tenth of the learning rate after each third of the steps


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The hyperparameters of a training run. Raise InputError for an invalid value.

    The learning rate rises during the first ``warm_up`` steps and then follows ``schedule`` until the last step.
    ``linear`` and ``cosine`` decay to zero. ``step`` decays to a tenth after each third of the steps. A rank's batch is
    divided into ``accumulate`` microbatches, and gradients are synchronized once per batch. If ``sync_every`` is
    greater than 1, the run is local SGD: instead of gradients, weights are averaged every ``sync_every`` steps and at
    the end of each epoch.

    >>> Recipe(optimizer="adam")
    Traceback (most recent call last):
    collectives.errors.InputError: unknown optimizer 'adam'; did you mean adamw? (choices: sgd, adamw)
    """

    learning_rate: float = 0.002
    scale_learning_rate: bool | str = False  # with the world size: "linear" (or True) or "sqrt"
    optimizer: str = "sgd"
    momentum: float = 0.9  # only for sgd
    weight_decay: float = 0.0
    schedule: str = "constant"
    warm_up: int = 0  # number of steps
    accumulate: int = 1
    clip_norm: float | None = None  # maximum norm of all averaged gradients together
    sync_every: int = 1
    precision: str = "float32"  # precision of forward; weights are always float32
    sync_batch_norm: bool = False
    broadcast_weights: bool = True  # broadcast rank 0's weights before the first step
    check_every: int = 0  # steps after which the replicas are compared; 0: never

    def __post_init__(self) -> None:
        check_number("learning_rate", self.learning_rate, above=0)
        check_number("momentum", self.momentum, at_least=0)
        check_number("weight_decay", self.weight_decay, at_least=0)
        check_known("optimizer", self.optimizer, OPTIMIZERS)
        check_known("schedule", self.schedule, SCHEDULES)
        check_known("precision", self.precision, PRECISIONS)
        check_whole_number("warm_up", self.warm_up, at_least=0)
        check_whole_number("accumulate", self.accumulate, at_least=1)
        check_whole_number("sync_every", self.sync_every, at_least=1)
        check_whole_number("check_every", self.check_every, at_least=0)
        if self.clip_norm is not None:
            check_number("clip_norm", self.clip_norm, above=0)
        for name in ("sync_batch_norm", "broadcast_weights"):
            check_bool(name, getattr(self, name))
        if not isinstance(self.scale_learning_rate, bool) and self.scale_learning_rate not in SCALINGS:
            accepted = f"True or False, or one of {', '.join(SCALINGS)}"
            raise InputError(f"scale_learning_rate must be {accepted}, not {quote(self.scale_learning_rate)}")

    def scaled_learning_rate(self, world_size: int) -> float:
        """Return the learning rate for ``world_size`` ranks, without warm-up and schedule.

        >>> Recipe(learning_rate=0.1, scale_learning_rate="sqrt").scaled_learning_rate(4)
        0.2
        """
        if not self.scale_learning_rate:
            return self.learning_rate
        return self.learning_rate * (sqrt(world_size) if self.scale_learning_rate == "sqrt" else world_size)

    def learning_rate_factor(self, step: int, steps: int) -> float:
        """Return the factor on the learning rate from warm-up and schedule, for ``step`` 0 to ``steps - 1``.

        >>> [Recipe(warm_up=4, schedule="linear").learning_rate_factor(step, 12) for step in (0, 3, 4, 8, 11)]
        [0.25, 1.0, 1.0, 0.5, 0.125]
        """
        if step < self.warm_up:
            return (step + 1) / self.warm_up
        share = (step - self.warm_up) / max(1, steps - self.warm_up)  # elapsed share of the schedule
        if self.schedule == "linear":
            return max(0.0, 1.0 - share)
        if self.schedule == "cosine":
            return (1.0 + cos(pi * min(1.0, share))) / 2.0
        if self.schedule == "step":
            return float(STEP_DECAY ** int(share / STEP_SHARE))
        return 1.0
