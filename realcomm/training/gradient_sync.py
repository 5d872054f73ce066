"""How the gradients of all ranks become their mean: after backward, or by torch's own during it."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import torch
from torch import nn
from torch._C._distributed_c10d import GradBucket  # whose public name has no type
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from collectives.declaration import Algorithm
from collectives.request import Request
from realcomm.execution.own_collective import make_runner
from realcomm.training.stopwatch import Stopwatch

Average = Callable[[torch.Tensor], None]  # replaces a flat buffer by its mean over all ranks


class GradientSync(Protocol):
    """What makes each rank's gradients the mean over all ranks."""

    def accumulating(self) -> AbstractContextManager[object]:
        """Return the context of a forward and backward whose gradients are not averaged yet."""

    def finish(self, gradients: torch.Tensor) -> None:
        """Return when the flat ``gradients`` hold the mean; called after the last backward of a step."""


class AfterBackward:
    """Averages all gradients at once, after backward."""

    def __init__(self, average: Average) -> None:
        self._average = average

    def accumulating(self) -> AbstractContextManager[object]:
        """Return a context without effect."""
        return nullcontext()

    def finish(self, gradients: torch.Tensor) -> None:
        """Replace ``gradients`` by their mean."""
        self._average(gradients)


class TorchsOwn:
    """torch's DistributedDataParallel, which averages the gradients during backward."""

    def __init__(self, model: nn.Module) -> None:
        self.model = DistributedDataParallel(model)

    def accumulating(self) -> AbstractContextManager[object]:
        """Return DistributedDataParallel's ``no_sync``."""
        return self.model.no_sync()

    def finish(self, gradients: torch.Tensor) -> None:
        """Do nothing: backward ends when the mean is there."""

    def record_buckets(self, watch: Stopwatch) -> None:
        """Have each bucket that torch reduces be a span, from when it is full to its mean."""

        def reduce_bucket(state: object, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
            end_of = watch.begin(f"bucket {bucket.index()}")

            def end(done: torch.futures.Future[torch.Tensor]) -> torch.Tensor:
                end_of()
                return done.value()

            return allreduce_hook(None, bucket).then(end)  # type: ignore[arg-type]

        self.model.register_comm_hook(None, reduce_bucket)


def make_sync(algorithm: Algorithm, rank: int, world_size: int, gradients: torch.Tensor) -> AfterBackward:
    """Return the sync that replaces ``gradients`` by their mean over all ranks after backward, by an all_reduce."""
    request = Request(algorithm, gradients.numel(), op="mean")
    return AfterBackward(make_runner(request, rank, world_size, gradients.device).run)


def _leave(gradients: torch.Tensor) -> None:
    """Leave the gradients as they are."""


no_sync = AfterBackward(_leave)  # of a rank that trains alone
