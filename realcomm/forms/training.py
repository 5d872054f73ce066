"""A training in a form of parallelism, as one rank carries it out, and the same on one rank alone."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from collectives.records.spans import Span
from realcomm.execution.device_clock import seconds_of
from realcomm.execution.group_memory import host_barrier
from realcomm.forms.pieces import Question, RankTimes, time_own_work, time_pieces
from realcomm.forms.plan import FormPlan, batch_of, build
from realcomm.forms.spread import Spread, loss_of, optimizer_of
from realcomm.launching.group import own_device
from realcomm.launching.status import report_progress, set_status
from realcomm.training.stopwatch import Stopwatch


class KeptBytes(NamedTuple):
    """Bytes of this rank between two steps."""

    parameters: int
    gradients: int
    optimizer: int


class FormResult(NamedTuple):
    """What a rank did. Losses are of its own samples, of a pipeline on the ranks of its last stage only."""

    losses: list[float]
    step_s: list[float]
    held: KeptBytes
    spans: list[Span]
    alone: "LoneSteps | None"  # of the first rank


class LoneSteps(NamedTuple):
    """Steps of one rank alone: the loss and seconds of each."""

    losses: list[float]
    step_s: list[float]


def train_form(rank: int, world_size: int, plan: FormPlan) -> FormResult:
    """Train as one rank of the default group; the first one has trained alone before."""
    set_status("training on one rank alone")
    alone = train_alone(plan) if rank == 0 and plan.checked else None
    host_barrier()  # ranks that wait on cores or a GPU would take time from the one that is timed
    set_status(f"spreading {plan.model} by {plan.form.label}")
    spread = Spread(build(plan).to(own_device()), plan.form, plan.recipe, stages=plan.stages, units=plan.units)
    watch, losses, seconds = Stopwatch(rank, "training step"), list[float](), list[float]()
    for step in range(plan.steps):
        samples, targets = (each.chunk(plan.form.data)[spread.place["data"]] for each in batch_of(plan, step))
        samples, targets = samples.to(own_device()), targets.to(own_device())
        watch.start()
        begin = watch.now()
        spread.optimizer.zero_grad()
        with watch.phase("forward, backward"):
            loss = spread.forward_and_back(samples, targets)
        with watch.phase("optimizer"):
            spread.optimizer.step()
        end = watch.now()
        seconds.append(watch.seconds(end) - watch.seconds(begin))
        losses += [] if loss is None else [loss]
        if rank == 0:
            report_progress(step + 1, plan.steps, f"training by {plan.form.label}")
    return FormResult(losses, seconds, held_bytes(spread.model, spread.optimizer), watch.spans, alone)


def train_alone(plan: FormPlan) -> LoneSteps:
    """Return the steps of one rank that trains the plain model on all samples, in the pieces that the form has them."""
    device, losses, seconds = own_device(), list[float](), list[float]()
    model = build(plan).to(device)
    kind, given = optimizer_of(plan.recipe)
    optimizer = kind(model.parameters(), **given)
    pieces = plan.form.data * plan.form.pieces
    for step in range(plan.checked):
        samples, targets = (each.to(device).chunk(pieces) for each in batch_of(plan, step))

        def take_step(samples: Sequence[Tensor] = samples, targets: Sequence[Tensor] = targets) -> None:
            optimizer.zero_grad()
            found = [_step(model, *each, pieces) for each in zip(samples, targets, strict=True)]
            optimizer.step()
            losses.append(sum(found) / pieces)

        seconds.append(seconds_of(take_step, device))
    return LoneSteps(losses, seconds)


def _step(model: nn.Module, samples: Tensor, targets: Tensor, pieces: int) -> float:
    loss = loss_of(model(samples), targets)
    (loss / pieces).backward()
    return float(loss.detach())


def calibrate_and_train(
    rank: int, world_size: int, plan: FormPlan, asked: Sequence[Question]
) -> tuple[RankTimes, float, FormResult]:
    """Time the pieces of a step and what torch does of its own, then train."""
    pieces = time_pieces(rank, world_size, plan, asked)
    [own] = time_own_work(rank, world_size, [plan])
    return pieces, own, train_form(rank, world_size, plan)


def held_bytes(model: nn.Module, optimizer: torch.optim.Optimizer) -> KeptBytes:
    """Return what a rank has of a model and its optimizer, without the numbers that count steps."""
    own = getattr(optimizer, "optim", optimizer)  # of ZeroRedundancyOptimizer, what has this rank's states
    parameters = [*model.parameters()]
    states = [
        value for kept in own.state.values() for value in kept.values() if isinstance(value, Tensor) and value.dim()
    ]
    return KeptBytes(
        _nbytes(parameters), _nbytes(each.grad for each in parameters if each.grad is not None), _nbytes(states)
    )


def _nbytes(tensors: Iterable[Tensor]) -> int:
    local = (each.to_local() if isinstance(each, DTensor) else each for each in tensors)
    return sum(each.numel() * each.element_size() for each in local)
