"""A training in a parallelism strategy, as one rank carries it out, and the same on one rank alone."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from collectives.records.spans import Span
from realcomm.execution.device_clock import seconds_of
from realcomm.execution.group_memory import host_barrier
from realcomm.launching.group import own_device
from realcomm.launching.status import report_progress, set_status
from realcomm.strategies.pieces import Question, RankTimes, Turns, time_pieces
from realcomm.strategies.plan import StrategyPlan, batches_of, build
from realcomm.strategies.spread import Spread, loss_of, optimizer_of
from realcomm.training.replica import save_weights
from realcomm.training.stopwatch import Stopwatch


class KeptBytes(NamedTuple):
    """Bytes of this rank between two steps."""

    parameters: int
    gradients: int
    optimizer: int


class StrategyResult(NamedTuple):
    """What a rank did. Losses are of its own samples, of a pipeline on the ranks of its last stage only."""

    losses: list[float]
    step_s: list[float]
    held: KeptBytes
    spans: list[Span]
    alone: "LoneSteps | None"  # of the first rank, if its device has room for the whole model


class LoneSteps(NamedTuple):
    """Steps of one rank alone: the loss and seconds of each."""

    losses: list[float]
    step_s: list[float]


TURNS = 12  # of timing pieces between the steps of a training


def train_strategy(
    rank: int,
    world_size: int,
    plan: StrategyPlan,
    weights: Path | None = None,
    between: Callable[[], None] | None = None,
) -> StrategyResult:
    """Train as one rank of the default group; the first one has trained alone before, and writes the ``weights``.

    ``between`` is called up to ``TURNS`` times before a step.
    """
    set_status("training on one rank alone")
    alone = _train_alone_if_it_fits(plan) if rank == 0 and plan.checked else None
    host_barrier()  # ranks that wait on cores or a GPU would take time from the one that is timed
    set_status(f"spreading {plan.model} by {plan.parallelism.label}")
    spread = Spread(build(plan), plan.parallelism, plan.recipe, stages=plan.stages, units=plan.units)
    watch, losses, seconds = Stopwatch(rank, "training step"), list[float](), list[float]()
    batches = batches_of(plan, spread.place["data"])
    for step in range(plan.steps):
        if between is not None and step % -(-plan.steps // TURNS) == 0:
            between()
        drawn = None if plan.images else next(batches)  # drawing at random is no part of a step
        watch.start()
        begin = watch.now()
        if drawn is None:
            with watch.phase("loading"):
                drawn = next(batches)
        spread.optimizer.zero_grad()
        with watch.phase("forward, backward"):
            loss = spread.forward_and_back(*drawn)
        with watch.phase("optimizer"):
            spread.optimizer.step()
        end = watch.now()
        seconds.append(watch.seconds(end) - watch.seconds(begin))
        losses += [] if loss is None else [loss]
        if rank == 0:
            report_progress(step + 1, plan.steps, f"training by {plan.parallelism.label}")
    if weights is not None:
        set_status("gathering the weights")
        whole = spread.gather_weights()
        if whole is not None:
            save_weights(whole, weights)
    return StrategyResult(losses, seconds, held_bytes(spread.model, spread.optimizer), watch.spans, alone)


def _train_alone_if_it_fits(plan: StrategyPlan) -> LoneSteps | None:
    with suppress(torch.OutOfMemoryError):
        return train_alone(plan)
    torch.cuda.empty_cache()
    return None


def train_alone(plan: StrategyPlan) -> LoneSteps:
    """Return the steps of one rank that trains the plain model on all samples, in the strategy's pieces."""
    device, losses, seconds = own_device(), list[float](), list[float]()
    model = build(plan).to(device)
    kind, given = optimizer_of(plan.recipe)
    optimizer = kind(model.parameters(), **given)
    parts, pieces = plan.parallelism.pieces, plan.parallelism.data * plan.parallelism.pieces
    if plan.images is not None:
        plan = plan._replace(images=replace(plan.images, num_workers=0, prefetch_factor=None))
    replicas = [batches_of(plan, place) for place in range(plan.parallelism.data)]
    for _ in range(plan.checked):
        drawn = [next(batches) for batches in replicas]

        def take_step(drawn: Sequence[tuple[Tensor, Tensor]] = drawn) -> None:
            optimizer.zero_grad()
            batches = (zip(samples.chunk(parts), targets.chunk(parts), strict=True) for samples, targets in drawn)
            found = [_step(model, *piece, pieces) for batch in batches for piece in batch]
            optimizer.step()
            losses.append(sum(found) / pieces)

        seconds.append(seconds_of(take_step, device))
    return LoneSteps(losses, seconds)


def _step(model: nn.Module, samples: Tensor, targets: Tensor, pieces: int) -> float:
    loss = loss_of(model(samples), targets)
    (loss / pieces).backward()
    return float(loss.detach())


def calibrate_and_train(
    rank: int, world_size: int, plan: StrategyPlan, asked: Sequence[Question], weights: Path | None = None
) -> tuple[RankTimes, StrategyResult]:
    """Time the pieces of a step, then train, in turns with pieces that are timed again."""
    found, turns = time_pieces(plan), Turns(rank, world_size, plan, asked)
    result = train_strategy(rank, world_size, plan, weights, turns.take)
    return turns.complete(found), result


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
