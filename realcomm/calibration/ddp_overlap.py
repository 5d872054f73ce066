"""What DistributedDataParallel does besides computing, measured piece by piece and never by running it.

The pieces: when each gradient is there during backward, gloo's own all_reduce of each bucket, how much slower backward
is beside such all_reduces, the copies of the gradients into the buckets and back, and the broadcast of the buffers.
"""

from collections.abc import Callable
from functools import partial
from time import perf_counter

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

from collectives.training.buckets import Bucket, Gradient, fill_buckets
from realcomm.calibration.blocks import BesideTimes, Interval
from realcomm.calibration.calibration_steps import CalibrationTraining


class OverlapCalibrator:
    """The pieces of a DistributedDataParallel step on one rank. All ranks call each method together."""

    def __init__(self, stand_in: CalibrationTraining) -> None:
        self._stand_in = stand_in
        self._model = stand_in.replica.model
        self._gradients = self._time_gradients(*stand_in.next_batch())
        self._gradients = self._time_gradients(*stand_in.next_batch())
        self._buckets: list[Bucket] = fill_buckets(self._gradients)
        self._messages = [torch.zeros(bucket.nbytes // 4) for bucket in self._buckets]
        self._flat = torch.zeros_like(stand_in.replica.gradients)
        self._buffers = torch.zeros(sum(buffer.nbytes for buffer in self._model.buffers()) // 4)

    def take_steps(self, count: int) -> list[BesideTimes]:
        """Return what the pieces took, so many times."""
        return [self._step() for _ in range(count)]

    def _step(self) -> BesideTimes:
        images, labels = self._stand_in.next_batch()
        alone = self._backward(images, labels, lambda: None)
        dist.barrier()
        reduced = [_interval(partial(dist.all_reduce, message)) for message in self._messages]
        under_way: list[dist.Work] = []

        def start() -> None:
            under_way.extend(dist.all_reduce(message, async_op=True) for message in self._messages)

        beside = self._backward(images, labels, start)
        for work in under_way:
            work.wait()
        dist.barrier()
        copies = _interval(self._copy)
        dist.barrier()
        broadcast = _interval(lambda: dist.broadcast(self._buffers, 0))
        self._stand_in.replica.optimizer.step()
        sizes = [bucket.nbytes for bucket in self._buckets]
        return BesideTimes(self._gradients, sizes, alone, beside, reduced, copies, broadcast)

    def _backward(self, images: torch.Tensor, labels: torch.Tensor, start: Callable[[], None]) -> float:
        """Return the seconds of backward, beside what ``start`` starts."""
        loss = cross_entropy(self._model(images), labels)
        dist.barrier()
        start()
        begin = perf_counter()
        self._stand_in.replica.optimizer.zero_grad(set_to_none=False)
        loss.backward()
        return perf_counter() - begin

    def _copy(self) -> None:
        """Copy each gradient into a flat buffer and back, as buckets do that gradients are no views of."""
        parameters = [p for p in self._model.parameters() if p.grad is not None]
        for direction in (True, False):
            at = 0
            for parameter in parameters:
                assert parameter.grad is not None
                piece = self._flat[at : at + parameter.numel()].view_as(parameter)
                (piece.copy_(parameter.grad) if direction else parameter.grad.copy_(piece))
                at += parameter.numel()

    def _time_gradients(self, images: torch.Tensor, labels: torch.Tensor) -> list[Gradient]:
        """Return the gradients in the order in which backward makes them."""
        times: list[tuple[int, float]] = []
        hooks = [
            parameter.register_post_accumulate_grad_hook(
                lambda parameter: times.append((parameter.nbytes, perf_counter()))
            )
            for parameter in self._model.parameters()
        ]
        loss = cross_entropy(self._model(images), labels)
        begin = perf_counter()
        loss.backward()
        whole = perf_counter() - begin
        for hook in hooks:
            hook.remove()
        return [Gradient(nbytes, min(1.0, (at - begin) / whole)) for nbytes, at in times]


def _interval(action: Callable[[], object]) -> Interval:
    begin = perf_counter()
    action()
    return begin, perf_counter()
