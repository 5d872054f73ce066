"""Run a training on one rank: its steps and epochs, and the state from which a later run resumes."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from collectives.catalogue import find_algorithm
from collectives.errors import RunFailed, note_error
from collectives.records.spans import PHASES as STEP_PHASES
from collectives.training.workload import Buckets, ComputePhases, Training
from realcomm.execution.executor import execute
from realcomm.execution.group_memory import host_barrier
from realcomm.execution.shared_clock import shared_instant
from realcomm.launching.group import own_device
from realcomm.launching.status import report_progress, set_status
from realcomm.training.datasets import Batch, Shard, held_out_batches, load_next
from realcomm.training.gradient_sync import DdpSync, DuringBackward, GradientSync, LocalSteps, make_sync, no_sync
from realcomm.training.models import build_model
from realcomm.training.observing import EpochRecord, Observer, State, StepRecord
from realcomm.training.rank_result import RankResult
from realcomm.training.replica import (
    WARM_UP_STEPS,
    Replica,
    broadcast,
    get_random_states,
    load_schedule,
    make_replica,
    save_weights,
    set_random_states,
    take_step,
    weights_digest,
)
from realcomm.training.replica_checks import ReplicaChecks, check_equal_steps, describe_non_finite
from realcomm.training.stopwatch import Stopwatch

LOCAL = ("model", "optimizer", "scaler")  # parts of the state that differ between ranks with local SGD
MEASURED_STEPS = 12


class RunningTraining:
    """A training run on one rank, executed in one or several blocks of steps. All ranks must call each method together.

    ``done`` is the number of finished steps. After a failure, ``watch`` (a Stopwatch) has the step and phase that
    failed.
    """

    def __init__(
        self,
        rank: int,
        world_size: int,
        training: Training,
        steps: int | None = None,
        observers: Sequence[Observer] = (),
        alone: ComputePhases | None = None,
    ) -> None:
        """Prepare the model, the gradient sync, and the observers.

        Unless ``training.broadcast_weights`` is false, all ranks get rank 0's weights. ``alone`` has the durations of a
        step's phases on one rank without communication. Default: rank 0 measures them.
        """
        set_status("preparing model and images")
        self.training, self.rank, self.world_size = training, rank, world_size
        self.model = build_model(training, seed=training.seed + rank)  # differs between ranks until the broadcast below
        self.shard = Shard(training, rank, world_size, steps)
        if alone is None:
            alone = measure_alone(training) if rank == 0 else ComputePhases(0.0, 0.0, 0.0)
            host_barrier()  # waiting ranks would take a shared GPU from the timed one
        self.alone = alone
        if training.broadcast_weights:
            set_status("broadcasting the weights")
            broadcast(self.model.state_dict().values())  # now all ranks have rank 0's weights
        self.replica, self.sync = make_replica_and_sync(self.model, training, rank, world_size, self.shard.steps)
        self.watch = Stopwatch(rank, "training step")
        if own_device().type != "cuda":
            self.sync.record_buckets(self.watch)
        self._seen, self._loss, self.done, self._first = 0, 0.0, 0, 0
        self._batches = self.shard.batches()
        check_equal_steps(self)
        self.batch = torch.empty(0), torch.empty(0)
        checks = [ReplicaChecks(training.check_every)] if training.check_every else []
        self._observers: list[Observer] = [*checks, *observers]
        for observer in self._observers:
            observer.load(self)
        for observer in self._observers:
            observer.begin(self)

    def take_steps(self, count: int | None = None) -> None:
        """Take ``count`` more steps, or all remaining steps."""
        set_status(f"waiting for all ranks before training step {self.done}")
        if self.rank == 0 and self.done == self._first > 0:
            # the launcher counts progress from this step
            report_progress(self.done, 0, f"resuming from step {self.done}")
        self.watch.resume(shared_instant())  # all ranks' stopwatches continue together
        remain = self.shard.steps - self.done
        try:
            for _ in range(remain if count is None else min(count, remain)):
                self._take_step(*load_next(self._batches, self.watch))
        except BaseException as error:
            for observer in self._observers:
                try:
                    observer.end(self, error)
                except Exception as later:
                    note_error(error, later)
            raise
        if self.done == self.shard.steps:
            for observer in self._observers:
                observer.end(self, None)
        self.watch.pause()

    def _take_step(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        step, learning_rate, every = self.done, self.learning_rate, self.training.sync_every
        self.batch = images, labels
        self._loss = take_step(self.replica, images, labels, self.sync, self.watch, self._check_loss)
        self._seen, self.done = self._seen + len(labels), step + 1
        if isinstance(self.sync, LocalSteps) and (self.done % every == 0 or self.at_epoch_end):
            with self.watch.phase("sync"):
                self.sync.average_weights(self.replica.gradients)
        if self.rank == 0:
            self._report_progress(step)
        if self._observers:
            self.watch.pause()
            self._notify_step(step, learning_rate)
            if self.at_epoch_end:
                self._notify_epoch(step)
            self.watch.resume()

    @property
    def steps(self) -> int:
        return self.shard.steps

    @property
    def images(self) -> int:
        return self.shard.images

    @property
    def at_epoch_end(self) -> bool:
        """Whether the last step ended an epoch or the training run."""
        return self.done > 0 and self.shard.ends_epoch(self.done - 1)

    @property
    def learning_rate(self) -> float:
        """The learning rate of the next step."""
        return float(self.replica.optimizer.param_groups[0]["lr"])

    def _check_loss(self, loss: float) -> None:
        """Raise RunFailed if the loss is not finite, because it would corrupt the weights of all ranks."""
        if not math.isfinite(loss):
            why = describe_non_finite(self.model, self.batch[0])
            raise RunFailed(f"the loss of step {self.done} is {loss} after the forward pass; {why}")

    def _report_progress(self, step: int) -> None:
        epoch = f"epoch {self.shard.epoch_of(step) + 1}/{self.training.epochs}"
        text = (
            f"training/{self.training.sync_name} {epoch} loss {self._loss:.2f}, {self._samples_per_s():.0f} samples/s"
        )
        report_progress(step + 1, self.shard.steps, text)

    def _samples_per_s(self) -> float:
        phases = self.watch.ended_phases()
        return self.world_size * self.training.batch_size / sum(phases[name] for name in STEP_PHASES & phases.keys())

    def _notify_step(self, step: int, learning_rate: float) -> None:
        [loss] = self.sums(self._loss)
        phases = self.watch.phases()
        name, epoch = self.training.sync_name, self.shard.epoch_of(step)
        record = StepRecord(name, step, epoch, loss / self.world_size, learning_rate, phases, self._samples_per_s())
        for observer in self._observers:
            observer.step_done(self, record)

    def _notify_epoch(self, step: int) -> None:
        seen, right, tested = self.sums(self._seen, *self.evaluate())
        name, epoch = self.training.sync_name, self.shard.epoch_of(step)
        record = EpochRecord(name, step, epoch, right / tested, int(seen))
        for observer in self._observers:
            observer.epoch_done(self, record)

    def evaluate(self) -> tuple[int, int]:
        """Return how many held-out images this rank classifies correctly, and how many it has."""
        set_status(f"evaluating after training step {self.done - 1}")
        broadcast(self.model.buffers())  # running statistics of batch norm differ between ranks
        right, tested = 0, 0
        self.model.eval()
        with torch.inference_mode():
            for images, labels in held_out_batches(self.training, self.rank, self.world_size):
                right += int((self.model(images).argmax(dim=1) == labels).sum())
                tested += len(labels)
        self.model.train()
        return right, tested

    def sums(self, *values: float) -> list[float]:
        """Return each value summed over all ranks, with the training's algorithm or a ring if the training has none."""
        sums = torch.tensor(values, dtype=torch.float64, device=own_device())
        execute(self.training.program or find_algorithm("all_reduce/ring"), sums)
        return list(sums.tolist())

    def finish(self, weights_file: Path | None = None) -> RankResult:
        """Evaluate the model, write its weights if a file is given, and return the result."""
        seen, losses, right, tested = self.sums(self._seen, self._loss, *self.evaluate())
        if self.rank == 0 and weights_file is not None:
            save_weights(self.model.state_dict(), weights_file)
        facts = {
            "batch_size": float(self.training.batch_size),
            "epochs": self.shard.epochs_after(self.done),
            "examples_seen": seen,
            "final_loss": losses / self.world_size,
            "test_accuracy": right / tested,
            "warmup_steps": float(self._first + min(WARM_UP_STEPS, self.done - self._first - 1)),
            "single_rank_step_s": self.alone.total,
            "single_rank_backward_s": self.alone.backward,
        }
        return RankResult(self.watch.spans, facts, weights_digest(self.model))

    def state_dict(self) -> State:
        """Return the state after the last step, from which a later run can resume.

        ``shared`` is equal on all ranks, so rank 0's copy is enough. ``own`` is the state of this rank. Both contain
        only tensors, numbers, texts, lists and dicts.
        """
        replica = self.replica
        shared = {
            "step": self.done,
            "epoch": self.shard.epoch_of(self.done),
            "model": self.model.state_dict(),
            "optimizer": replica.optimizer.state_dict(),
            "scheduler": replica.scheduler.state_dict(),
            "scaler": replica.scaler.state_dict(),
            "sync": self.sync.state_dict(),
        }
        local_state = {"seen": self._seen, "loss": self._loss, "random": get_random_states()}
        if isinstance(self.sync, LocalSteps):  # ranks differ between averages
            local_state |= {name: shared[name] for name in LOCAL}
        return {"shared": shared, "own": local_state}

    def load_state_dict(self, state: State) -> None:
        """Restore the state that ``state_dict`` returned. Call this before the first step."""
        local_state, replica = state["own"], self.replica
        shared = state["shared"] | {name: local_state[name] for name in LOCAL if name in local_state}
        self.model.load_state_dict(shared["model"])
        load_schedule(replica, shared["optimizer"], shared["scheduler"])
        replica.scaler.load_state_dict(shared["scaler"])
        self.sync.load_state_dict(shared["sync"])
        self.done = self._first = shared["step"]
        self._seen, self._loss = local_state["seen"], local_state["loss"]
        self.watch.step = self.done - 1
        self._batches = self.shard.batches(self.done)
        if local_state["random"] is not None:
            set_random_states(local_state["random"])


def make_replica_and_sync(
    model: nn.Module, training: Training, rank: int, world_size: int, steps: int = 1
) -> tuple[Replica, GradientSync]:
    """Return the replica to train for ``steps`` steps, and the GradientSync for its gradients."""
    replica = make_replica(model, training, world_size, steps)
    algorithm, buckets = training.gradient_sync, training.buckets
    if algorithm is None or (buckets is not None and buckets.hook == "ddp"):
        ddp = DdpSync(model, (buckets or Buckets()).mb, algorithm)
        return replace(replica, model=ddp.model), ddp
    if training.sync_every > 1:
        return replica, LocalSteps(make_sync(algorithm, rank, world_size, replica.gradients), model)
    if buckets is not None:
        return replica, DuringBackward(algorithm, buckets, model, replica.gradients)
    return replica, make_sync(algorithm, rank, world_size, replica.gradients)


class EndlessBatches:
    """The batches of a rank, which start again after the last epoch."""

    def __init__(self, training: Training, rank: int, world_size: int) -> None:
        self._shard = Shard(training, rank, world_size)
        self._batches = iter(self._shard)

    def __iter__(self) -> "EndlessBatches":
        return self

    def __next__(self) -> Batch:
        batch = next(self._batches, None)
        if batch is None:
            self._batches = iter(self._shard)
            batch = next(self._batches)
        return batch

    def take_prefetched(self) -> None:
        """Skip the prefetched batches, so that the next steps wait for the loader if it is slower than training."""
        for _ in range(self._shard.prefetched):
            next(self)


class LoneTraining:
    """Trains a new model on one rank without communication, with a given number of threads."""

    def __init__(self, training: Training, threads: int | None = None) -> None:
        """Prepare the model and images. ``threads`` is the number of torch's threads. Default: the current number."""
        self._threads, self._watch = threads, Stopwatch(rank=0)
        alone = replace(training, sync_batch_norm=False)  # a lone rank has no peers
        self._replica = make_replica(build_model(alone, training.seed), training)
        self._batches = EndlessBatches(training, 0, 1)

    def take_steps(self, count: int, warm_up: int = 1) -> list[ComputePhases]:
        """Take ``warm_up`` steps, then ``count`` steps; return the phases of each step after the warm-up."""
        threads, steps = torch.get_num_threads(), list[ComputePhases]()
        torch.set_num_threads(self._threads or threads)
        try:
            self._batches.take_prefetched()
            for _ in range(warm_up + count):
                take_step(self._replica, *load_next(self._batches, self._watch), no_sync, self._watch)
                seconds = self._watch.phases()
                steps.append(
                    ComputePhases(*(seconds[name] for name in ("forward", "backward", "optimizer", "loading")))
                )
                report_progress(0, 0, "computing without communication")
        finally:
            torch.set_num_threads(threads)
        return steps[warm_up:]


def measure_alone(training: Training) -> ComputePhases:
    """Return the phases of the step with the median duration in this process, without communication."""
    steps = LoneTraining(training).take_steps(MEASURED_STEPS, WARM_UP_STEPS)
    return sorted(steps, key=lambda phases: phases.total)[len(steps) // 2]
