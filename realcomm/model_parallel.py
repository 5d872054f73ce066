"""A model cut into stages, and one rank of a training on rows of them: what it computes, sends and awaits, timed.

A step: each stage computes forward when the one before has sent it its activations, the last one the loss, and backward
goes the other way. A stage's replicas average their gradients when they have them all; then each takes its step.
"""

from collections.abc import Callable
from itertools import pairwise
from statistics import median
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

from collectives.records.spans import Span
from realcomm.execution.device_clock import device_clock, seconds_of
from realcomm.forms.blocks import named_blocks
from realcomm.launching.group import own_device
from realcomm.launching.torch_process import import_compiler
from realcomm.profiling.model_sources import ModelSource, find_model
from realcomm.training.stopwatch import Stopwatch

WARM_UP = 2
REPEATED = 5  # times that each phase is calibrated


class StagePlan(NamedTuple):
    """A training on rows of stages: which blocks each stage has, and how much is trained.

    Rank r is stage r // replicas of replica r % replicas, as in the mesh of ``collectives.training.parallelism``.
    """

    model: str
    sample: tuple[int, ...] | None
    blocks: tuple[tuple[str, ...], ...]  # of each stage, by name
    replicas: int
    batch_size: int  # of a replica
    steps: int
    seed: int = 0
    learning_rate: float = 0.01

    @property
    def stages(self) -> int:
        """How many processes share a model."""
        return len(self.blocks)

    @property
    def world_size(self) -> int:
        """How many processes there are."""
        return self.stages * self.replicas

    @property
    def source(self) -> ModelSource:
        """The model."""
        return find_model(self.model, self.sample)


def build_stage(plan: StagePlan, stage: int) -> nn.Module:
    """Return a stage with the weights that the whole model has from the plan's seed."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(plan.seed)
        blocks = named_blocks(plan.source.build(), plan.model)
    return nn.Sequential(*(blocks[name] for name in plan.blocks[stage]))


def given_shape(plan: StagePlan, stage: int) -> tuple[int, ...]:
    """Return the shape of what a stage is given."""
    source = plan.source
    if stage == 0:
        return (plan.batch_size, *source.sample)
    with torch.device("meta"):
        blocks = named_blocks(source.build(), plan.model)
        before = nn.Sequential(*(blocks[name] for names in plan.blocks[:stage] for name in names))
        return tuple(before(source.batch(plan.batch_size, "meta")).shape)


def batch_of(plan: StagePlan, replica: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a replica's random images and labels of a step; each process makes the same ones."""
    made = torch.Generator().manual_seed(plan.seed + 1_000_003 * step + replica)
    images = torch.randn((plan.batch_size, *plan.source.sample), generator=made)
    return images, torch.randint(10, (plan.batch_size,), generator=made)


class StageCalibration(NamedTuple):
    """Seconds of one stage by itself: its phases, a message from the stage before, and its replicas' average."""

    forward: float
    backward: float
    optimizer: float
    message: float  # 0 of the first stage
    sync: float  # 0 without other replicas


class StageResult(NamedTuple):
    """What a rank measured. ``losses`` are of the last stage; ``digest`` is a sum of all its weights."""

    calibration: StageCalibration
    spans: list[Span]
    step_s: list[float]
    losses: list[float]
    digest: float


class StageRank:
    """A rank: a stage of a replica."""

    def __init__(self, rank: int, plan: StagePlan) -> None:
        self.plan, self.rank = plan, rank
        self.stage, self.replica = divmod(rank, plan.replicas)
        self.is_first, self.is_last = self.stage == 0, self.stage == plan.stages - 1
        self.groups = [
            dist.new_group([s * plan.replicas + r for r in range(plan.replicas)]) for s in range(plan.stages)
        ]
        self.device = own_device()
        self.model = build_stage(plan, self.stage).to(self.device).train()
        import_compiler()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=plan.learning_rate, momentum=0.9)
        self.given = torch.zeros(given_shape(plan, self.stage), device=self.device, requires_grad=not self.is_first)
        self.watch = Stopwatch(rank, "step")

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Return the images and labels of a step, on this rank's device."""
        images, labels = batch_of(self.plan, self.replica, step)
        return images.to(self.device), labels.to(self.device)

    def neighbour(self, by: int) -> int:
        """Return the rank of the same replica, so many stages on."""
        return (self.stage + by) * self.plan.replicas + self.replica

    def step(self, images: Tensor, labels: Tensor) -> float | None:
        """Carry out a step; return the loss on the last stage."""
        self.optimizer.zero_grad()
        self.watch.start()
        given = images
        if not self.is_first:
            with self.watch.phase("wait"):
                given = torch.empty(self.given.shape, device=self.device)
                dist.recv(given, self.neighbour(-1))
            given.requires_grad_()
        with self.watch.phase("forward"):
            found = self.model(given)
            loss = functional.cross_entropy(found, labels) if self.is_last else None
        self._backward(given, found, loss)
        if self.plan.replicas > 1:
            with self.watch.phase("sync"):
                self.average()
        with self.watch.phase("optimizer"):
            self.optimizer.step()
        return None if loss is None else float(loss.detach())

    def _backward(self, given: Tensor, found: Tensor, loss: Tensor | None) -> None:
        """Compute backward from the loss, or from what the next stage sends; send on what this one was given."""
        gradient = None
        if loss is None:
            with self.watch.phase("send"):
                dist.send(found.detach().contiguous(), self.neighbour(1))
            with self.watch.phase("wait"):
                gradient = torch.empty(found.shape, device=self.device)
                dist.recv(gradient, self.neighbour(1))
        with self.watch.phase("backward"):
            (found if loss is None else loss).backward(gradient)
        if not self.is_first:
            assert given.grad is not None
            with self.watch.phase("send"):
                dist.send(given.grad.contiguous(), self.neighbour(-1))

    def average(self) -> None:
        """Average the gradients of this stage over its replicas, in one flat buffer."""
        gradients = [each.grad for each in self.model.parameters() if each.grad is not None]
        flat = torch.cat([each.flatten() for each in gradients])
        group = self.groups[self.stage]
        assert isinstance(group, dist.ProcessGroup)  # this rank is in it
        dist.all_reduce(flat, group=group)
        flat /= self.plan.replicas
        for each, mean in zip(gradients, flat.split([each.numel() for each in gradients]), strict=True):
            each.copy_(mean.view_as(each))

    def calibrate(self) -> StageCalibration:
        """Time each stage's phases while the others wait, a message and an average; the weights stay as they are."""
        kept = {name: each.clone() for name, each in self.model.state_dict().items()}
        phases = {"forward": 0.0, "backward": 0.0, "optimizer": 0.0, "message": 0.0, "sync": 0.0}
        for stage in range(self.plan.stages):
            dist.barrier()
            if stage == self.stage:
                rows = [self._time_phases() for _ in range(WARM_UP + REPEATED)][WARM_UP:]
                phases |= dict(
                    zip(("forward", "backward", "optimizer"), map(median, zip(*rows, strict=True)), strict=True)
                )
            if stage:
                phases |= self._time_message(stage)
            dist.barrier()
            if self.plan.replicas > 1 and stage == self.stage:
                phases["sync"] = _median_seconds(self.average)
        dist.barrier()
        self.model.load_state_dict(kept)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=self.plan.learning_rate, momentum=0.9)
        return StageCalibration(**phases)

    def _time_phases(self) -> tuple[float, float, float]:
        images, labels = self.batch(0)
        given = images if self.is_first else torch.randn_like(self.given).requires_grad_()
        self.optimizer.zero_grad()
        clock = device_clock(self.device)
        marks = [clock.now()]
        found = self.model(given)
        loss = functional.cross_entropy(found, labels) if self.is_last else found.square().mean()
        marks.append(clock.now())
        loss.backward()
        marks.append(clock.now())
        self.optimizer.step()
        begin, after, done, end = map(clock.seconds, (*marks, clock.now()))
        return after - begin, done - after, end - done

    def _time_message(self, stage: int) -> dict[str, float]:
        """Time a message to ``stage`` and back, on its ranks and on those before; half of it is one message."""
        buffer = torch.zeros(given_shape(self.plan, stage), device=self.device)
        if self.stage == stage:

            def back() -> None:
                dist.recv(buffer, self.neighbour(-1))
                dist.send(buffer, self.neighbour(-1))

            return {"message": _median_seconds(back) / 2}
        if self.stage == stage - 1:

            def there() -> None:
                dist.send(buffer, self.neighbour(1))
                dist.recv(buffer, self.neighbour(1))

            _median_seconds(there)
        return {}


def _median_seconds(action: Callable[[], object]) -> float:
    return median([seconds_of(action, own_device()) for _ in range(WARM_UP + REPEATED)][WARM_UP:])


def run_stage(rank: int, world_size: int, plan: StagePlan) -> StageResult:
    """Calibrate and train as one rank of the default group."""
    one = StageRank(rank, plan)
    calibration = one.calibrate()
    batches = [one.batch(number) for number in range(plan.steps)]
    one.watch = Stopwatch(rank, "step")
    losses, ends = list[float](), [one.watch.seconds(one.watch.now())]
    for images, labels in batches:
        loss = one.step(images, labels)
        ends.append(one.watch.seconds(one.watch.now()))
        losses += [] if loss is None else [loss]
    steps = [after - before for before, after in pairwise(ends)]
    return StageResult(calibration, one.watch.spans, steps, losses, _digest(one.model))


def _digest(model: nn.Module) -> float:
    return float(sum(each.detach().double().sum() for each in model.parameters()))
