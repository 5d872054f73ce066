"""Define observers of a training run, and the records that they receive after each step and epoch."""

from typing import Any, NamedTuple

State = dict[str, Any]


class StepRecord(NamedTuple):
    """One training step of one rank. Everything except the phases and the throughput is equal on all ranks."""

    gradient_sync: str
    step: int  # counted from 0
    epoch: int  # counted from 0
    loss: float  # before the step, mean over the ranks
    learning_rate: float  # in this step
    phases: dict[str, float]  # seconds by name: loading, forward, backward, sync, optimizer, and each bucket
    samples_per_s: float  # of all ranks, from the seconds of this rank's phases


class EpochRecord(NamedTuple):
    """The state after an epoch or after the last step, equal on all ranks."""

    gradient_sync: str
    step: int  # number of the last step
    epoch: int  # counted from 0
    test_accuracy: float  # share of the held-out images
    examples_seen: int  # total of all ranks since the start of the training


class Observer:
    """Receives the events of a training run on each rank. Methods do nothing unless they are overridden.

    Observers are passed to ``train`` and pickled for the ranks. All ranks have the same observers, so the methods may
    run collectives. ``running`` is the RunningTraining. The time of these methods does not count toward any phase.
    """

    def load(self, running: Any) -> None:
        """Called once before the ``begin`` of any observer. It may restore a state of the training run."""

    def begin(self, running: Any) -> None:
        """Called once before the first step."""

    def step_done(self, running: Any, record: StepRecord) -> None:
        """Called after each step, on all ranks."""

    def epoch_done(self, running: Any, record: EpochRecord) -> None:
        """Called on all ranks after each epoch and after the last step, when ``step_done`` has returned."""

    def end(self, running: Any, error: BaseException | None) -> None:
        """Called once after the last step, or after this rank has raised ``error``, which is then raised again."""
