"""One rank's copy of the model and its training step, used in a training and where its computing is timed."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from collectives.training.recipe import Recipe
from realcomm.launching.compiler_folder import import_compiler
from realcomm.launching.group import own_device
from realcomm.training.gradient_sync import GradientSync, lay_out, named_parameters
from realcomm.training.stopwatch import Stopwatch

WARM_UP_STEPS = 3  # the first ones are slower: memory is fetched and kernels are chosen
AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}

PHASES = ("forward", "backward", "sync", "optimizer")  # of a step, in this order


@dataclass(frozen=True)
class Replica:
    """A model, its gradients in one flat float32 buffer [parameters], and what changes its parameters by them."""

    model: nn.Module
    gradients: torch.Tensor
    optimizer: Optimizer
    scheduler: LambdaLR  # of the learning rate, by the number of steps
    scaler: torch.amp.GradScaler  # of the loss, so that gradients of fp16 do not vanish; idle with other precisions
    recipe: Recipe


def make_replica(model: nn.Module, recipe: Recipe, world_size: int = 1, steps: int = 1) -> Replica:
    """Return a model ready to train for ``steps`` steps by a recipe; its gradients are zero."""
    import_compiler()
    learning_rate = recipe.scaled_learning_rate(world_size)
    optimizer: Optimizer
    if recipe.optimizer == "adamw":
        optimizer = AdamW(model.parameters(), learning_rate, weight_decay=recipe.weight_decay)
    else:
        optimizer = SGD(model.parameters(), learning_rate, recipe.momentum, weight_decay=recipe.weight_decay)
    scheduler = LambdaLR(optimizer, lambda step: recipe.learning_rate_factor(step, steps))
    scaler = torch.amp.GradScaler(own_device().type, enabled=recipe.precision == "fp16")
    return Replica(model, flat_gradients(model), optimizer, scheduler, scaler, recipe)


def load_schedule(replica: Replica, optimizer: dict[str, Any], scheduler: dict[str, Any]) -> None:
    """Go on from the states of an optimizer and its schedule.

    The learning rate is that of this replica's schedule, which may have another last step.
    """
    replica.optimizer.load_state_dict(optimizer)
    replica.scheduler.load_state_dict(scheduler)
    done, base_rates, factors = replica.scheduler.last_epoch, replica.scheduler.base_lrs, replica.scheduler.lr_lambdas
    for group, base, factor in zip(replica.optimizer.param_groups, base_rates, factors, strict=True):
        group["lr"] = base * factor(done)


def flat_gradients(model: nn.Module) -> torch.Tensor:
    """Return a buffer of zeros for all gradients, and make each parameter's gradient a view of its piece of it."""
    parameters = [parameter for _, parameter in named_parameters(model)]
    buffer = torch.zeros(sum(each.numel() for each in parameters), device=parameters[0].device)
    lay_out(parameters, buffer)
    return buffer


def take_step(
    replica: Replica,
    images: torch.Tensor,
    labels: torch.Tensor,
    sync: GradientSync,
    watch: Stopwatch,
    check_loss: Callable[[float], None] | None = None,
) -> float:
    """Train on one batch, timing the four phases; return this rank's loss before the step.

    The batch is computed in as many pieces as the recipe accumulates, and each has a forward and a backward of its own.
    Clearing the gradients counts as backward, and waiting for other ranks as sync. ``check_loss`` is called before
    the first gradient is made of a loss.
    """
    watch.start()
    sync.begin()
    pieces = list(zip(*(each.chunk(replica.recipe.accumulate) for each in (images, labels)), strict=True))
    total = 0.0
    for number, (piece, own_labels) in enumerate(pieces):
        with sync.accumulating() if number < len(pieces) - 1 else nullcontext():
            with watch.phase("forward"):
                loss = _forward(replica, piece, own_labels) * (len(own_labels) / len(labels))
                total += loss.item()
                if check_loss is not None:
                    check_loss(total)
            with watch.phase("backward"):
                if number == 0:
                    replica.optimizer.zero_grad(set_to_none=False)  # they stay views of the flat buffer
                replica.scaler.scale(loss).backward()
    with watch.phase("sync"):
        sync.finish(replica.gradients)
    with watch.phase("optimizer"):
        update_weights(replica)
    return total


def _forward(replica: Replica, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the mean loss of a batch, a float32 tensor of one element."""
    precision = replica.recipe.precision
    with torch.autocast(images.device.type, AUTOCAST.get(precision), enabled=precision in AUTOCAST):
        scores = replica.model(images)
    return cross_entropy(scores.float(), labels)


def update_weights(replica: Replica) -> None:
    """Change the parameters by the gradients, clipped to the recipe's norm, and go on to the next learning rate."""
    replica.scaler.unscale_(replica.optimizer)
    if replica.recipe.clip_norm is not None:
        nn.utils.clip_grad_norm_(replica.model.parameters(), replica.recipe.clip_norm)
    replica.scaler.step(replica.optimizer)
    replica.scaler.update()
    replica.scheduler.step()
