"""Who looks on while a rank trains: what an observer is told after each step and each epoch."""

from typing import Any, NamedTuple, Protocol

import torch
from torch import nn

from collectives.training.workload import Training
from realcomm.training.gradient_sync import GradientSync
from realcomm.training.stopwatch import Stopwatch

State = dict[str, Any]


class RankGradients(NamedTuple):
    """What one rank's own backward made, before any average."""

    norm: float  # of all gradients together
    unused: list[str]  # parameters that it made no gradient of


class Observed(Protocol):
    """A training on one rank, as observers see it: ``realcomm.training.running.RunningTraining``."""

    training: Training
    rank: int
    world_size: int
    model: nn.Module
    sync: GradientSync
    batch: tuple[torch.Tensor, torch.Tensor]  # this rank's images and labels of the last step
    inspected: list[RankGradients]  # of the last step, by rank; empty unless it was one to inspect
    watch: Stopwatch  # the step and the phase under way, also after a failure
    done: int  # steps

    @property
    def steps(self) -> int:
        """How many steps the whole training has."""

    @property
    def images(self) -> int:
        """How many images all ranks train on."""

    @property
    def at_epoch_end(self) -> bool:
        """Whether the last step ended an epoch, or the training."""

    def state_dict(self) -> State:
        """Return what a restart needs: ``shared``, the same on all ranks, and ``own``, of this rank."""

    def load_state_dict(self, state: State) -> None:
        """Go on from such a state."""

    def sums(self, *values: float) -> list[float]:
        """Return the sum of each value over all ranks, which all call this."""


class StepRecord(NamedTuple):
    """One training step of one rank. All but the phases are the same on all ranks."""

    gradient_sync: str
    step: int  # from 0 on
    epoch: int  # from 0 on
    loss: float  # before the step, mean over the ranks
    learning_rate: float  # of the step
    phases: dict[str, float]  # seconds by name: forward, backward, sync, optimizer
    samples_per_s: float  # over all ranks, by the seconds of this rank's phases


class EpochRecord(NamedTuple):
    """The state after an epoch, or after the last step; the same on all ranks."""

    gradient_sync: str
    step: int  # the last one's number
    epoch: int  # from 0 on
    test_accuracy: float  # share of the held-out images
    examples_seen: int  # by all ranks together, from the start of the training


class Observer:
    """Looks on while a rank trains; every rank has its own. Each method does nothing unless it is overridden.

    Observers are given to ``train`` and sent to the ranks, so they can be pickled. All ranks have the same ones, and
    so a method that is called on all ranks may run a collective. What an observer does belongs to no phase.
    """

    def load(self, running: Observed) -> None:
        """Be called once before any observer begins; the training may be loaded with a state here."""

    def begin(self, running: Observed) -> None:
        """Be called once before the first step."""

    def step_done(self, running: Observed, record: StepRecord) -> None:
        """Be called after each step, on all ranks."""

    def epoch_done(self, running: Observed, record: EpochRecord) -> None:
        """Be called after each epoch and after the last step, on all ranks; after ``step_done``."""

    def end(self, running: Observed, error: BaseException | None) -> None:
        """Be called once when the steps are over: all done, or by an ``error`` on this rank, which goes on after."""
