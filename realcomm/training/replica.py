"""One rank's copy of the model and its training step, used in a training and where its computing is timed."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD, Optimizer
from torchvision.models import get_model

from collectives.errors import InputError
from collectives.records.spans import Span
from collectives.workload import MODEL_PARAMETERS
from realcomm.launching.group import own_device

CLASSES = 10
MOMENTUM = 0.9
WARM_UP_STEPS = 3  # the first ones are slower: memory is fetched and kernels are chosen

PHASES = ("forward", "backward", "sync", "optimizer")  # of a step, in this order

Sync = Callable[[torch.Tensor], None]  # replaces a flat gradient buffer by its mean over all ranks


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
    """Return torchvision's model with ten classes and random weights from ``seed``, on this rank's device.

    Raise InputError for a model that is not known.
    """
    check_model(name)
    with torch.random.fork_rng(devices=()):  # leaves the caller's random numbers as they are
        torch.manual_seed(seed)
        model: nn.Module = get_model(name, weights=None, num_classes=CLASSES)
    return model.to(own_device())


def make_replica(model: nn.Module, learning_rate: float) -> Replica:
    """Return a model ready to train by SGD with momentum; its gradients are zero."""
    return Replica(model, flat_gradients(model), SGD(model.parameters(), lr=learning_rate, momentum=MOMENTUM))


def flat_gradients(model: nn.Module) -> torch.Tensor:
    """Return a buffer of zeros for all gradients, and make each parameter's gradient a view of its piece of it."""
    parameters = list(model.parameters())
    sizes = [parameter.numel() for parameter in parameters]
    buffer = torch.zeros(sum(sizes), device=parameters[0].device)
    for parameter, piece in zip(parameters, buffer.split(sizes), strict=True):
        parameter.grad = piece.view_as(parameter)
    return buffer


def take_step(
    replica: Replica, images: torch.Tensor, labels: torch.Tensor, sync: Sync, watch: "Stopwatch"
) -> torch.Tensor:
    """Train on one batch, timing the four phases; return this rank's loss before the step, a tensor of one element.

    Clearing the gradients counts as backward. Waiting for other ranks counts as sync.
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
    """Do nothing: for a rank that trains alone, or whose backward has averaged the gradients already."""


class Stopwatch:
    """The phases of one rank's steps as spans, in seconds since the watch was made; each begins as the last one ends.

    >>> watch = Stopwatch(rank=0)
    >>> watch.start()
    >>> watch.lap("forward")
    >>> [(span.step, span.name) for span in watch.spans]
    [(0, 'forward')]
    """

    def __init__(self, rank: int) -> None:
        self.spans: list[Span] = []
        self._rank = rank
        self._step = -1
        self._origin = self._last = self._paused = _now()

    def pause(self) -> None:
        """Stand still until ``resume``."""
        self._paused = _now()

    def resume(self) -> None:
        """Go on from the time at which the watch was paused, or made."""
        self._origin += _now() - self._paused

    def start(self) -> None:
        """Begin a step."""
        self._step += 1
        self._last = _now()

    def lap(self, name: str) -> None:
        """End the phase called ``name``."""
        now = _now()
        self.spans.append(
            Span(self._rank, name, self._step, self._last - self._origin, now - self._origin, 0, self._step)
        )
        self._last = now

    def begin(self, name: str) -> Callable[[], None]:
        """Begin something that overlaps the phases of this step; return what ends it, which any thread may call."""
        begin, step = time.perf_counter() - self._origin, self._step

        def end() -> None:
            self.spans.append(Span(self._rank, name, step, begin, time.perf_counter() - self._origin, 0, step))

        return end

    def absolute_spans(self) -> list[Span]:
        """Return the spans so far in seconds of ``time.perf_counter``; another thread may ask."""
        by = self._origin
        return [span._replace(begin=span.begin + by, end=span.end + by) for span in list(self.spans)]


def _now() -> float:
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()  # calls return before the GPU is done
    return time.perf_counter()
