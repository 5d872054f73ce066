"""Train a replica of the model on one rank: optimizer, training step, weights, and random states."""

import hashlib
import io
import random
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from collectives.catalogue import find_algorithm
from collectives.output_files import write_bytes
from collectives.training.recipe import Recipe
from realcomm.execution.executor import execute
from realcomm.launching.group import own_device
from realcomm.launching.torch_process import import_compiler
from realcomm.training.gradient_sync import GradientSync, lay_out, named_parameters
from realcomm.training.stopwatch import Stopwatch

WARM_UP_STEPS = 3  # these steps are slower, because memory is allocated and kernels are chosen
AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}

RandomStates = dict[str, Any]


@dataclass(frozen=True)
class Replica:
    """A model with its optimizer, and its gradients in one flat float32 buffer."""

    model: nn.Module
    gradients: torch.Tensor
    optimizer: Optimizer
    scheduler: LambdaLR  # sets the learning rate from the number of steps
    # scales the loss, so that fp16 gradients do not vanish; inactive with other precisions
    scaler: torch.amp.GradScaler
    recipe: Recipe


def make_replica(model: nn.Module, recipe: Recipe, world_size: int = 1, steps: int = 1) -> Replica:
    """Return a replica of the model, ready to train for ``steps`` steps with a recipe. Its gradients are zero."""
    import_compiler()
    kind, arguments = optimizer_of(recipe)
    optimizer = kind(model.parameters(), **arguments | {"lr": recipe.scaled_learning_rate(world_size)})
    scheduler = LambdaLR(optimizer, lambda step: recipe.learning_rate_factor(step, steps))
    scaler = torch.amp.GradScaler(own_device().type, enabled=recipe.precision == "fp16")
    return Replica(model, flat_gradients(model), optimizer, scheduler, scaler, recipe)


def optimizer_of(recipe: Recipe) -> tuple[type[Optimizer], dict[str, Any]]:
    """Return the torch class of a recipe's optimizer, and the arguments for its constructor."""
    arguments: dict[str, Any] = {"lr": recipe.learning_rate, "weight_decay": recipe.weight_decay}
    if recipe.optimizer == "adamw":
        return AdamW, arguments
    return SGD, {**arguments, "momentum": recipe.momentum}


def load_schedule(replica: Replica, optimizer: dict[str, Any], scheduler: dict[str, Any]) -> None:
    """Restore the states of an optimizer and its scheduler from an earlier run.

    The learning rate then follows this replica's schedule, which may have a different number of steps.
    """
    replica.optimizer.load_state_dict(optimizer)
    replica.scheduler.load_state_dict(scheduler)
    done, base_rates, factors = replica.scheduler.last_epoch, replica.scheduler.base_lrs, replica.scheduler.lr_lambdas
    for group, base, factor in zip(replica.optimizer.param_groups, base_rates, factors, strict=True):
        group["lr"] = base * factor(done)


def flat_gradients(model: nn.Module) -> torch.Tensor:
    """Return a zeroed buffer for all gradients, and make each parameter's gradient a view of it."""
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
    """Train on one batch that is already loaded, and time the phases. Return this rank's loss before the update.

    The batch is split into the recipe's number of micro-batches, each with its own forward and backward. Clearing
    gradients counts as backward, and waiting for other ranks as sync. Before each backward, ``check_loss`` is called
    with the loss so far.
    """
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
                    replica.optimizer.zero_grad(set_to_none=False)  # gradients stay views of the flat buffer
                replica.scaler.scale(loss).backward()
    with watch.phase("sync"):
        sync.finish(replica.gradients)
    with watch.phase("optimizer"):
        update_weights(replica)
    return total


def _forward(replica: Replica, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    precision = replica.recipe.precision
    with torch.autocast(images.device.type, AUTOCAST.get(precision), enabled=precision in AUTOCAST):
        scores = replica.model(images)
    return cross_entropy(scores.float(), labels)


def update_weights(replica: Replica) -> None:
    """Clip the gradients, update the parameters, and advance the learning rate."""
    replica.scaler.unscale_(replica.optimizer)
    if replica.recipe.clip_norm is not None:
        nn.utils.clip_grad_norm_(replica.model.parameters(), replica.recipe.clip_norm)
    replica.scaler.step(replica.optimizer)
    replica.scaler.update()
    replica.scheduler.step()


def broadcast(tensors: Iterable[torch.Tensor]) -> None:
    """Copy tensors of any dtype and layout from rank 0 to all ranks, in one message."""
    copied = [tensor.detach() for tensor in tensors]
    if not copied:
        return
    sent = torch.cat([to_bytes(tensor) for tensor in copied])
    execute(find_algorithm("broadcast/naive"), sent)
    for tensor, piece in zip(copied, sent.split([tensor.nbytes for tensor in copied]), strict=True):
        tensor.copy_(piece.clone().view(tensor.dtype).view(tensor.shape))  # the copy is aligned for its dtype


def save_weights(weights: Mapping[str, torch.Tensor], path: Path) -> None:
    """Write a model's state_dict to ``path``, atomically."""
    content = io.BytesIO()
    torch.save({name: tensor.cpu() for name, tensor in weights.items()}, content)
    write_bytes(path, content.getvalue())


def weights_digest(model: nn.Module) -> str:
    """Return the SHA-256 of all parameters and persistent buffers, in hexadecimal."""
    summed = hashlib.sha256()
    for tensor in model.state_dict().values():
        summed.update(to_bytes(tensor).cpu().numpy().tobytes())
    return summed.hexdigest()


def to_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor's elements in index order as a uint8 tensor [nbytes]. It may share memory with ``tensor``."""
    return tensor.detach().contiguous().view(-1).view(torch.uint8)


def get_random_states() -> RandomStates:
    """Return the random states of torch, Python and numpy. If the GPU is in use, also return the GPU's state."""
    name, keys, *rest = np.random.get_state(legacy=True)
    states: RandomStates = {
        "torch": torch.get_rng_state(),
        "python": random.getstate(),
        "numpy": (name, torch.from_numpy(np.asarray(keys, dtype=np.int64)), *rest),
    }
    if torch.cuda.is_initialized():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def set_random_states(states: RandomStates) -> None:
    """Restore the states that ``get_random_states`` returned.

    >>> before = get_random_states()
    >>> first = torch.rand(3)
    >>> set_random_states(before)
    >>> torch.equal(torch.rand(3), first)
    True
    """
    torch.set_rng_state(states["torch"].cpu())
    version, numbers, gauss = states["python"]
    random.setstate((version, tuple(numbers), gauss))
    name, keys, *rest = states["numpy"]
    np.random.set_state((name, keys.cpu().numpy().astype(np.uint32), *rest))
    if "cuda" in states and torch.cuda.is_initialized():
        torch.cuda.set_rng_state(states["cuda"].cpu())
