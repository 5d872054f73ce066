"""Checks of lesson 6: data parallel by hand, and with buckets that overlap backward."""

import time
from itertools import pairwise
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from course.checks.exercise import (
    ALPHA,
    BETA,
    Exercise,
    Predicted,
    Shown,
    WrongAnswerError,
    expect_equal,
    measuring,
)

LAYERS, WIDTH, BACKWARD = 5, 256, 1e-3  # backward time of a layer, in seconds
LAYER = WIDTH * WIDTH * 4  # bytes
BUCKET = 2 * LAYER
STEPS = 3
ODD_WIDTHS, ODD_BUCKET = (3, 4, 3, 4), 112  # float64 weights of 96 bytes; biases of 32, 24 and 32
ODD_BUCKETS = [128, 120, 128]  # one layer per bucket, in either order of weight and bias


class SlowBackward(torch.autograd.Function):
    """The identity function with a backward pass that takes ``BACKWARD`` seconds of virtual time."""

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


def odd_model() -> nn.Sequential:
    """Return a float64 model with biases and layers of different sizes."""
    torch.manual_seed(1)
    return nn.Sequential(*(nn.Linear(*pair, dtype=torch.float64) for pair in pairwise(ODD_WIDTHS)))


def inputs_of(of: nn.Sequential, rank: int, step: int) -> torch.Tensor:
    weight: Any = of[0].weight
    return torch.full((1, weight.shape[1]), float(rank + 1 + 3 * step), dtype=weight.dtype)


def backward(of: nn.Sequential, step: int) -> None:
    of(inputs_of(of, dist.get_rank(), step)).sum().backward()


def expected_means(of: nn.Sequential, step: int) -> list[torch.Tensor]:
    world_size, means = dist.get_world_size(), []
    parameters = [parameter.detach().clone().requires_grad_() for parameter in of.parameters()]
    by_name = {name: parameter for (name, _), parameter in zip(of.named_parameters(), parameters, strict=True)}
    for rank in range(world_size):
        values: Any = inputs_of(of, rank, step)
        for number in range(len(of)):
            values = nn.functional.linear(values, by_name[f"{number}.weight"], by_name.get(f"{number}.bias"))
        means.append([each / world_size for each in torch.autograd.grad(values.sum(), parameters)])
    return [torch.stack(each).sum(0) for each in zip(*means, strict=True)]


def expect_means(of: nn.Sequential, step: int, when: str = "") -> None:
    for number, (parameter, mean) in enumerate(zip(of.parameters(), expected_means(of, step), strict=True)):
        if parameter.grad is None:
            raise WrongAnswerError(f"{when}rank {dist.get_rank()}: parameter {number} has no gradient")
        expect_equal(parameter.grad, mean, f"{when}rank {dist.get_rank()}: the gradient of parameter {number}")


@Exercise("torch.distributed.all_reduce, which sums; Tensor.div_; parameters whose grad is None", (1, 2, 3, 5))
def average_gradients(lesson: ModuleType) -> None:
    for make in (model, odd_model):
        mine = make()
        for step in range(2):
            mine.zero_grad()
            unused = nn.Parameter(torch.zeros(3))
            mine.register_parameter("unused", unused)
            with measuring(lesson, make is model and step == 0):
                backward(mine, step)
                lesson.average_gradients(mine)
            mine.register_parameter("unused", None)
            if unused.grad is not None:
                raise WrongAnswerError("a gradient that is None must stay None, but average_gradients set it")
            expect_means(mine, step, f"step {step + 1}, " * bool(step))


def bucket_bytes(world_size: int) -> list[int]:
    """Return the bytes of each all_reduce that one rank calls during the check."""
    step = [BUCKET] * (LAYERS // 2) + [LAYER] * (LAYERS % 2)
    return STEPS * step + 2 * ODD_BUCKETS


@Exercise(
    "Tensor.register_post_accumulate_grad_hook; what all_reduce with async_op=True "
    "returns; torch's note 'Distributed Data Parallel' on buckets",
    (2, 3, 5),
    most_seconds=lambda p: 1.05 * ((LAYERS - 1) * BACKWARD + all_reduce_seconds(p)),
    all_reduced=bucket_bytes,
    hint="the last parameters fill the first bucket until it has bucket_bytes or more, and so on; the hook of a "
    "bucket's last gradient begins its all_reduce, with async_op=True; only the last one is waited for after "
    "backward",
    name="OverlappedGradients",
)
def overlapped_gradients(lesson: ModuleType) -> None:
    mine = model()
    averaging = lesson.OverlappedGradients(mine, BUCKET)
    for step in range(STEPS):
        mine.zero_grad()
        with measuring(lesson):
            backward(mine, step)
            averaging.finish()
        expect_means(mine, step, f"step {step + 1}, ")
    odd = odd_model()
    averaging = lesson.OverlappedGradients(odd, ODD_BUCKET)
    for step in range(2):
        odd.zero_grad(set_to_none=bool(step))
        backward(odd, step)
        averaging.finish()
        expect_means(odd, step, f"in layers of unlike sizes, step {step + 1}, ")


def all_reduce_seconds(p: int) -> float:
    return 2 * (p - 1) * (ALPHA + LAYER / p * BETA)


def predicted() -> dict[str, Predicted]:
    return {
        "seconds if averaging waits": Predicted(
            0.072, "Backward of four layers takes 40 ms, then four averages of 8 ms follow: 40 + 32 ms."
        ),
        "seconds if it overlaps": Predicted(
            0.048, "Each average hides behind the next layer's 10 ms, except the last one: 40 + 8 ms."
        ),
    }


SHOWN = Shown(4)
