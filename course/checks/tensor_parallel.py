"""Checks of lesson 9: tensor and sequence parallel."""

import inspect
from types import ModuleType

import torch
import torch.distributed as dist
from torch import nn

from course.checks.exercise import Exercise, Shown, WrongAnswerError, expect_equal

HIDDEN, WIDTH, TOKENS = 4, 8, 8


def tensors() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    first = torch.arange(float(WIDTH * HIDDEN)).reshape(WIDTH, HIDDEN) % 7 - 3
    second = torch.arange(float(WIDTH * HIDDEN)).reshape(HIDDEN, WIDTH) % 5 - 2
    inputs = torch.arange(float(TOKENS * HIDDEN)).reshape(TOKENS, HIDDEN) % 3 - 1
    return first, second, inputs


def functions(lesson: ModuleType) -> None:
    rank, world_size = dist.get_rank(), dist.get_world_size()
    whole = torch.arange(float(TOKENS)).reshape(TOKENS, 1)
    part = whole.chunk(world_size)[rank]
    cases = [
        ("Copy", whole, whole, whole * world_size),
        ("Sum", whole, whole * world_size, whole),
        ("GatherSequence", part, whole, part * world_size),
        ("ScatterSequence", whole, part * world_size, whole),
    ]
    for name, inputs, wanted, gradient in cases:
        function, given = getattr(lesson, name), inputs
        for way in ("forward", "backward"):
            if not isinstance(inspect.getattr_static(function, way), staticmethod):
                raise WrongAnswerError(f"{name}'s {way} should be a @staticmethod, with ctx its first argument")
        inputs = inputs.clone().requires_grad_()
        outputs = function.apply(inputs)
        expect_equal(inputs.detach(), given, f"rank {rank}: {name}'s input, which must stay,")
        expect_equal(outputs.detach(), wanted, f"rank {rank}: {name}'s forward")
        outputs.backward(part if name == "ScatterSequence" else whole)
        expect_equal(inputs.grad, gradient, f"rank {rank}: {name}'s backward")


def mlp(lesson: ModuleType, sequence: bool) -> None:
    rank, world_size = dist.get_rank(), dist.get_world_size()
    first, second, inputs = tensors()
    whole = [tensor.clone().requires_grad_() for tensor in (first, second, inputs)]
    result = torch.relu(whole[2] @ whole[0].T) @ whole[1].T
    result.square().sum().backward()
    layer = lesson.ParallelMLP(first, second, sequence=sequence)
    parts = [WIDTH // world_size, HIDDEN], [HIDDEN, WIDTH // world_size]
    for name, part, cut in zip(("first", "second"), parts, ("rows", "columns"), strict=True):
        mine = getattr(layer, name, None)
        place = [0] * getattr(mine, "ndim", 0)
        if not isinstance(mine, nn.Parameter):
            raise WrongAnswerError(f"rank {rank}: self.{name} should be an nn.Parameter", mine, place)
        if list(mine.shape) != part:
            text = f"rank {rank}: self.{name} is {list(mine.shape)} and should be {part}, by {cut}"
            raise WrongAnswerError(text, mine, place)
    mine = (inputs.chunk(world_size)[rank] if sequence else inputs).clone().requires_grad_()
    outputs = layer(mine)
    wanted = result.detach().chunk(world_size)[rank] if sequence else result.detach()
    by = "by parts of the sequence, " if sequence else ""
    expect_equal(outputs.detach(), wanted, f"rank {rank}: {by}the outputs")
    outputs.square().sum().backward()
    gradient = whole[2].grad.chunk(world_size)[rank] if sequence else whole[2].grad
    expect_equal(mine.grad, gradient, f"rank {rank}: {by}the gradient of the inputs")
    expect_equal(layer.first.grad, whole[0].grad.chunk(world_size)[rank], f"rank {rank}: {by}first.grad")
    expect_equal(layer.second.grad, whole[1].grad.chunk(world_size, dim=1)[rank], f"rank {rank}: {by}second.grad")


def parallel_mlp(lesson: ModuleType) -> None:
    mlp(lesson, sequence=False)
    mlp(lesson, sequence=True)


BYTES = 4 * TOKENS * HIDDEN
PARTS = "where each rank keeps its part alone, a reduce_scatter moves half of what an all_reduce moves"
EXERCISES = [
    Exercise(
        "Copy, Sum, GatherSequence, ScatterSequence",
        functions,
        "torch.autograd.Function; the docstrings say both directions of each",
        (1, 2, 4),
        most_bytes=lambda p: 8 * (p - 1) * 4 * TOKENS // p,
        hint=PARTS,
    ),
    Exercise(
        "ParallelMLP",
        parallel_mlp,
        "the docstring: who holds which rows and columns; Shoeybi et al. 2019, section 3",
        (1, 2, 4),
        most_bytes=lambda p: 2 * 2 * 2 * (p - 1) * BYTES / p,
        hint="one all_reduce in forward and one in backward, or a gather and a scatter in their place, are enough",
    ),
]
PREDICTED = {"collectives in forward": 1, "collectives in backward": 1}
SHOWN = Shown(4)
