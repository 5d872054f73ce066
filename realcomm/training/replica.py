"""One rank's copy of the model and the step it takes: the same in a training and where its computing is timed."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD, Optimizer
from torchvision.models import get_model

from collectives.errors import InputError
from collectives.records.trace import Span
from collectives.workload import MODEL_PARAMETERS
from realcomm.launching.group import own_device

CLASSES = 10
MOMENTUM = 0.9
WARM_UP_STEPS = 3  # the first ones are slower: memory is fetched and kernels are chosen

Sync = Callable[[torch.Tensor], None]  # leaves the mean over all ranks in a flat gradient buffer


@dataclass(frozen=True)
class Replica:
    """A model, its gradients in one flat float32 buffer [parameters], and the optimizer of its parameters."""

    model: nn.Module
    gradients: torch.Tensor
    optimizer: Optimizer


def check_model(name: str) -> None:
    """Raise InputError for a model that cannot be built."""
    if name not in MODEL_PARAMETERS:
        raise InputError(f"model {name!r} is not known; there are {', '.join(MODEL_PARAMETERS)}")


def build_model(name: str, seed: int) -> nn.Module:
    """torchvision's model with ten classes on this rank's device; its random weights follow from ``seed``."""
    check_model(name)
    with torch.random.fork_rng(devices=()):  # the caller's random numbers go on as if nothing had happened
        torch.manual_seed(seed)
        model: nn.Module = get_model(name, weights=None, num_classes=CLASSES)
    return model.to(own_device())


def make_replica(model: nn.Module, learning_rate: float) -> Replica:
    """A model made ready to train with SGD and momentum; its gradients are zero."""
    return Replica(model, flat_gradients(model), SGD(model.parameters(), lr=learning_rate, momentum=MOMENTUM))


def flat_gradients(model: nn.Module) -> torch.Tensor:
    """One buffer for all gradients, zero; each parameter's gradient is a view of its piece, and backward adds there."""
    parameters = list(model.parameters())
    sizes = [parameter.numel() for parameter in parameters]
    buffer = torch.zeros(sum(sizes), device=parameters[0].device)
    for parameter, piece in zip(parameters, buffer.split(sizes), strict=True):
        parameter.grad = piece.view_as(parameter)
    return buffer


def training_step(
    replica: Replica, images: torch.Tensor, labels: torch.Tensor, sync: Sync, watch: "Stopwatch"
) -> torch.Tensor:
    """One iteration of training, its four phases timed; returns this rank's loss before it.

    Clearing the gradients counts as backward. What the ranks wait for each other counts as sync.
    """
    watch.start()
    loss = cross_entropy(replica.model(images), labels)
    watch.lap("forward")
    replica.optimizer.zero_grad(set_to_none=False)  # they stay views of the flat buffer
    loss.backward()
    watch.lap("backward")
    sync(replica.gradients)
    watch.lap("sync")
    replica.optimizer.step()
    watch.lap("optimizer")
    return loss.detach()


def no_sync(gradients: torch.Tensor) -> None:
    """The sync of a rank that trains alone, or whose backward has averaged the gradients already."""


class Stopwatch:
    """The phases of one rank's steps as spans, in seconds since the watch was made: each ends where the next begins."""

    def __init__(self, rank: int) -> None:
        self.spans: list[Span] = []
        self._rank = rank
        self._step = -1
        self._origin = self._last = _now()

    def start(self) -> None:
        """A step begins now."""
        self._step += 1
        self._last = _now()

    def lap(self, name: str) -> None:
        """The phase called ``name`` ends now."""
        now = _now()
        self.spans.append(Span(self._rank, name, self._step, self._last - self._origin, now - self._origin))
        self._last = now


def _now() -> float:
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()  # a GPU still works when the call that set it to work has returned
    return time.perf_counter()
