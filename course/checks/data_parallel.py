"""Checks of lesson 6: data parallel by hand, and with buckets that overlap backward."""

import time
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from course.checks.exercise import ALPHA, BETA, Exercise, Shown, WrongAnswerError, expect_equal

LAYERS, WIDTH, BACKWARD = 5, 256, 1e-3  # seconds that backward takes to reach the layer before
BUCKET = 2 * WIDTH * WIDTH * 4  # bytes: two layers


class SlowBackward(torch.autograd.Function):
    """Takes virtual time in backward."""

    @staticmethod
    def forward(ctx: Any, inputs: torch.Tensor) -> torch.Tensor:
        return inputs.view_as(inputs)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        time.sleep(BACKWARD)
        return gradient


class Layer(nn.Linear):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return super().forward(SlowBackward.apply(inputs))


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(Layer(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)))


def backward(of: nn.Module) -> None:
    of(torch.full((1, WIDTH), float(dist.get_rank() + 1))).sum().backward()


def expected_means() -> list[torch.Tensor]:
    world_size, means = dist.get_world_size(), []
    for rank in range(world_size):
        alone = model()
        alone.requires_grad_()
        inputs = torch.full((1, WIDTH), float(rank + 1))
        for layer in alone:
            inputs = nn.functional.linear(inputs, layer.weight)
        inputs.sum().backward()
        means.append([p.grad / world_size for p in alone.parameters()])
    return [torch.stack(each).sum(0) for each in zip(*means, strict=True)]


def expect_means(of: nn.Module, when: str = "") -> None:
    for number, (parameter, mean) in enumerate(zip(of.parameters(), expected_means(), strict=True)):
        if parameter.grad is None:
            raise WrongAnswerError(f"{when}rank {dist.get_rank()}: parameter {number} has no gradient")
        expect_equal(parameter.grad, mean, f"{when}rank {dist.get_rank()}: the gradient of parameter {number}")


def average_gradients(lesson: ModuleType) -> None:
    mine = model()
    backward(mine)
    mine.frozen = nn.Parameter(torch.zeros(3))  # type: ignore[assignment]  # without a gradient
    lesson.average_gradients(mine)
    if mine.frozen.grad is not None:
        raise WrongAnswerError("a parameter whose gradient is None has one afterwards; it should stay None")
    del mine.frozen
    expect_means(mine)


def overlapped_gradients(lesson: ModuleType) -> None:
    mine = model()
    averaging = lesson.OverlappedGradients(mine, BUCKET)
    for step in range(2):
        mine.zero_grad()
        backward(mine)
        averaging.finish()
        expect_means(mine, f"step {step + 1}, ")


def all_reduce_seconds(p: int) -> float:
    return 2 * (p - 1) * (ALPHA + WIDTH * WIDTH * 4 / p * BETA)


EXERCISES = [
    Exercise(
        "average_gradients",
        average_gradients,
        "torch.distributed.all_reduce sums; Tensor.div_; parameters whose grad is None",
        (1, 2, 4),
    ),
    Exercise(
        "OverlappedGradients",
        overlapped_gradients,
        "Tensor.register_post_accumulate_grad_hook; what all_reduce with async_op=True "
        "returns; torch's note 'Distributed Data Parallel' on buckets",
        (2, 4),
        most_seconds=lambda p: 2 * 1.05 * ((LAYERS - 1) * BACKWARD + all_reduce_seconds(p)),
        most_all_reduces=2 * -(-LAYERS // 2),
        hint="a bucket is of the last two layers, the next of the two before, and so on; each bucket's all_reduce "
        "begins, with async_op=True, in the hook of its last gradient; only the last one is waited for after backward",
    ),
]
PREDICTED = {"seconds if averaging waits": 0.072, "seconds if it overlaps": 0.048}
SHOWN = Shown(4)
