"""Observers of a training, and the records that they receive after each step and epoch."""

from typing import Any, NamedTuple, Protocol

import torch
from torch import nn

from collectives.training.workload import Training
from realcomm.training.gradient_sync import GradientSync
from realcomm.training.stopwatch import Stopwatch

State = dict[str, Any]


class RankGradients(NamedTuple):
    """The gradients of one rank's own backward, before any average."""

    norm: float  # of all gradients together
    unused: list[str]  # parameters without a gradient


class Observed(Protocol):
    """A training on one rank, as observers see it: ``realcomm.training.running.RunningTraining``."""

    training: Training
    rank: int
    world_size: int
    model: nn.Module
    sync: GradientSync
    batch: tuple[torch.Tensor, torch.Tensor]  # this rank's images and labels of the last step
    inspected: list[RankGradients]  # of the last step, by rank; empty if it was not inspected
    watch: Stopwatch  # has the current step and phase, also after a failure
    done: int  # steps

    @property
    def steps(self) -> int:
        """The number of steps of the whole training."""

    @property
    def images(self) -> int:
        """The number of images that all ranks train on."""

    @property
    def at_epoch_end(self) -> bool:
        """Whether the last step ended an epoch or the training."""

    def state_dict(self) -> State:
        """Return the state that a restart needs: ``shared``, equal on all ranks, and ``own``, of this rank."""

    def load_state_dict(self, state: State) -> None:
        """Restore a state of ``state_dict``."""

    def sums(self, *values: float) -> list[float]:
        """Return the sum of each value over all ranks, which all call this."""


class StepRecord(NamedTuple):
    """One training step of one rank. Everything except the phases is equal on all ranks."""

    gradient_sync: str
    step: int  # from 0 on
    epoch: int  # from 0 on
    loss: float  # before the step, mean over the ranks
    learning_rate: float  # of the step
    phases: dict[str, float]  # seconds by name: forward, backward, sync, optimizer
    samples_per_s: float  # over all ranks, by the seconds of this rank's phases


class EpochRecord(NamedTuple):
    """The state after an epoch or after the last step, equal on all ranks."""

    gradient_sync: str
    step: int  # number of the last step
    epoch: int  # from 0 on
    test_accuracy: float  # share of the held-out images
    examples_seen: int  # by all ranks together, from the start of the training


class Observer:
    """Observes a training on each rank. Each method does nothing unless it is overridden.

    Observers are passed to ``train`` and pickled for the ranks. All ranks have the same ones, so their methods may run
    collectives. Their time belongs to no phase.
    """

    def load(self, running: Observed) -> None:
        """Called once before any observer begins. May restore a state of the training."""

    def begin(self, running: Observed) -> None:
        """Called once before the first step."""

    def step_done(self, running: Observed, record: StepRecord) -> None:
        """Called after each step, on all ranks."""

    def epoch_done(self, running: Observed, record: EpochRecord) -> None:
        """Called after each epoch and after the last step, on all ranks, following ``step_done``."""

    def end(self, running: Observed, error: BaseException | None) -> None:
        """Called once after the last step, or after an ``error`` on this rank, which is raised afterwards."""
