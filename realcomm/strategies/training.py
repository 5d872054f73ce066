"""Train with a parallelism strategy on one rank, and train the whole model on one rank alone for comparison."""

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
from realcomm.strategies.pieces import RankTimes, TimedCollective, Turns, time_pieces
from realcomm.strategies.plan import StrategyPlan, batches_of, build
from realcomm.strategies.spread import Spread, loss_of
from realcomm.training.replica import optimizer_of, save_weights
from realcomm.training.stopwatch import Stopwatch


class KeptBytes(NamedTuple):
    """The memory in bytes that this rank uses between two steps."""

    parameters: int
    gradients: int
    optimizer: int


class StrategyResult(NamedTuple):
    """One rank's result. ``losses`` has the rank's loss in each step. In a pipeline, only the last stage has losses."""

    losses: list[float]
    step_s: list[float]
    held: KeptBytes
    spans: list[Span]
    alone: "LoneSteps | None"  # on the first rank, if the whole model fits on its device


class LoneSteps(NamedTuple):
    """The steps of one rank that trains the whole model alone: a loss and a duration in seconds for each step."""

    losses: list[float]
    step_s: list[float]


TURNS = 12  # how often parts are timed between training steps


def train_strategy(
    rank: int,
    world_size: int,
    plan: StrategyPlan,
    weights: Path | None = None,
    between: Callable[[], None] | None = None,
) -> StrategyResult:
    """Train as one rank of the default group. If ``weights`` is set, rank 0 writes the final weights to this file.

    If the whole model fits on rank 0's device, rank 0 first trains it alone for ``plan.checked`` steps. ``between`` is
    called at most ``TURNS`` times, before evenly spaced steps.
    """
    set_status("training on one rank alone")
    alone = _train_alone_if_it_fits(plan) if rank == 0 and plan.checked else None
    host_barrier()  # waiting ranks would take cores or a shared GPU from the timed one
    set_status(f"distributing {plan.model} by {plan.parallelism.label}")
    spread = Spread(build(plan), plan.parallelism, plan.recipe, stages=plan.stages, units=plan.units)
    watch, losses, seconds = Stopwatch(rank, "training step"), list[float](), list[float]()
    batches = batches_of(plan, spread.place["data"])
    for step in range(plan.steps):
        if between is not None and step % -(-plan.steps // TURNS) == 0:
            between()
        batch = None if plan.images else next(batches)  # drawing random samples is not part of a step
        watch.start()
        begin = watch.now()
        if batch is None:
            with watch.phase("loading"):
                batch = next(batches)
        spread.optimizer.zero_grad()
        with watch.phase("forward, backward"):
            loss = spread.forward_and_back(*batch)
        with watch.phase("optimizer"):
            spread.optimizer.step()
        end = watch.now()
        seconds.append(watch.seconds(end) - watch.seconds(begin))
        losses += [] if loss is None else [loss]
        if rank == 0:
            report_progress(step + 1, plan.steps, f"training by {plan.parallelism.label}")
    if weights is not None:
        set_status("gathering the weights")
        model_weights = spread.gather_weights()
        if model_weights is not None:
            save_weights(model_weights, weights)
    return StrategyResult(losses, seconds, held_bytes(spread.model, spread.optimizer), watch.spans, alone)


def _train_alone_if_it_fits(plan: StrategyPlan) -> LoneSteps | None:
    with suppress(torch.OutOfMemoryError):
        return train_alone(plan)
    torch.cuda.empty_cache()
    return None


def train_alone(plan: StrategyPlan) -> LoneSteps:
    """Train the whole model on this rank for ``plan.checked`` steps, on all ranks' samples and micro-batches."""
    device, losses, seconds = own_device(), list[float](), list[float]()
    model = build(plan).to(device)
    kind, options = optimizer_of(plan.recipe)
    optimizer = kind(model.parameters(), **options)
    parts, pieces = plan.parallelism.pieces, plan.parallelism.data * plan.parallelism.pieces
    if plan.images is not None:
        plan = plan._replace(images=replace(plan.images, num_workers=0, prefetch_factor=None))
    replicas = [batches_of(plan, place) for place in range(plan.parallelism.data)]
    for _ in range(plan.checked):
        replica_batches = [next(batches) for batches in replicas]

        def take_step(replica_batches: Sequence[tuple[Tensor, Tensor]] = replica_batches) -> None:
            optimizer.zero_grad()
            losses.append(0.0)
            for samples, targets in replica_batches:
                for piece, piece_targets in zip(samples.chunk(parts), targets.chunk(parts), strict=True):
                    loss = loss_of(model(piece), piece_targets) / pieces
                    loss.backward()
                    losses[-1] += float(loss.detach())
            optimizer.step()

        seconds.append(seconds_of(take_step, device))
    return LoneSteps(losses, seconds)


def calibrate_and_train(
    rank: int, world_size: int, plan: StrategyPlan, collectives: Sequence[TimedCollective], weights: Path | None = None
) -> tuple[RankTimes, StrategyResult]:
    """Time compute and loading, then train. Between training steps, ``Turns`` times the other parts of a step."""
    times, turns = time_pieces(plan), Turns(rank, world_size, plan, collectives)
    result = train_strategy(rank, world_size, plan, weights, turns.take)
    return turns.complete(times), result


def held_bytes(model: nn.Module, optimizer: torch.optim.Optimizer) -> KeptBytes:
    """Return the bytes of a model's parameters, gradients and optimizer states on this rank, without step counters."""
    inner = getattr(optimizer, "optim", optimizer)  # ZeroRedundancyOptimizer's inner optimizer has this rank's states
    parameters = [*model.parameters()]
    states = [
        value for state in inner.state.values() for value in state.values() if isinstance(value, Tensor) and value.dim()
    ]
    return KeptBytes(
        _nbytes(parameters), _nbytes(each.grad for each in parameters if each.grad is not None), _nbytes(states)
    )


def _nbytes(tensors: Iterable[Tensor]) -> int:
    local = (each.to_local() if isinstance(each, DTensor) else each for each in tensors)
    return sum(each.numel() * each.element_size() for each in local)
