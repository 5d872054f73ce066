"""Checks of lesson 9: tensor and sequence parallel."""

import inspect
from types import ModuleType

import torch
import torch.distributed as dist
from torch import nn

from course.checks.exercise import Exercise, Predicted, Shown, WrongAnswerError, expect_equal, measuring

WIDTH, STEPS = 4, 2  # features of the layer's input and output


def tokens(p: int) -> int:
    """Return the number of tokens, which is also the hidden width. It is a multiple of the number of ranks ``p``."""
    return 2 * p


def tensors(p: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    hidden = tokens(p)
    first = torch.arange(hidden * WIDTH, dtype=dtype).reshape(hidden, WIDTH) % 7 - 3
    second = torch.arange(hidden * WIDTH, dtype=dtype).reshape(WIDTH, hidden) % 5 - 2
    inputs = torch.arange(tokens(p) * WIDTH, dtype=dtype).reshape(tokens(p), WIDTH) % 3 - 1
    return first, second, inputs


@Exercise(
    "torch.autograd.Function; the docstrings, which give both directions of each",
    (1, 2, 3, 5),
    most_bytes=lambda p: 2 * (p - 1) * 8 * 6 * 2,
    hint="a reduce_scatter sends half of the bytes of an all_reduce, and each rank needs only its part",
    name="Copy, Sum, GatherSequence, ScatterSequence",
)
def functions(lesson: ModuleType) -> None:
    rank, world_size = dist.get_rank(), dist.get_world_size()
    for shape, dtype in (((-1, 1), torch.float32), ((-1, 2, 3), torch.float64)):
        elements = tokens(world_size) * (1 if dtype == torch.float32 else 6)
        full_tensor = torch.arange(elements, dtype=dtype).reshape(shape)
        part = full_tensor.chunk(world_size)[rank]
        cases = [
            ("Copy", full_tensor, full_tensor, full_tensor * world_size),
            ("Sum", full_tensor, full_tensor * world_size, full_tensor),
            ("GatherSequence", part, full_tensor, part * world_size),
            ("ScatterSequence", full_tensor, part * world_size, full_tensor),
        ]
        for name, argument, wanted, wanted_gradient in cases:
            function = getattr(lesson, name)
            for method in ("forward", "backward"):
                if not isinstance(inspect.getattr_static(function, method), staticmethod):
                    raise WrongAnswerError(f"{name}.{method} must be a @staticmethod whose first argument is ctx")
            inputs = argument.clone().requires_grad_()
            received = part if name == "ScatterSequence" else full_tensor
            gradient = received.clone()
            with measuring(lesson):
                outputs = function.apply(inputs)
                expect_equal(inputs.detach(), argument, f"rank {rank}: {name}'s input, which must not change,")
                expect_equal(outputs.detach(), wanted, f"rank {rank}: {name}'s forward")
                outputs.backward(gradient)
            expect_equal(inputs.grad, wanted_gradient, f"rank {rank}: {name}'s backward")
            expect_equal(
                gradient, received, f"rank {rank}: the gradient that {name}'s backward gets, which must not change,"
            )


def mlp(lesson: ModuleType, sequence: bool, dtype: torch.dtype) -> None:
    rank, world_size = dist.get_rank(), dist.get_world_size()
    first, second, inputs = tensors(world_size, dtype)
    layer = lesson.ParallelMLP(first.clone(), second.clone(), sequence=sequence)
    hidden = tokens(world_size)
    parts = [hidden // world_size, WIDTH], [WIDTH, hidden // world_size]
    for name, part, cut in zip(("first", "second"), parts, ("rows", "columns"), strict=True):
        mine = getattr(layer, name, None)
        place = [0] * getattr(mine, "ndim", 0)
        if not isinstance(mine, nn.Parameter):
            raise WrongAnswerError(f"rank {rank}: self.{name} must be an nn.Parameter, not {mine!r}", mine, place)
        if list(mine.shape) != part:
            text = f"rank {rank}: self.{name} must be {part}, not {list(mine.shape)}: cut it by {cut}"
            raise WrongAnswerError(text, mine, place)
    for step in range(STEPS):
        leaves = [tensor.clone().requires_grad_() for tensor in (first, second, inputs)]
        result = torch.relu(leaves[2] @ leaves[0].T) @ leaves[1].T
        result.square().sum().backward()
        wanted_first, wanted_second, wanted_inputs = (tensor.grad for tensor in leaves)
        assert wanted_first is not None and wanted_second is not None and wanted_inputs is not None
        layer.zero_grad()
        mine = (inputs.chunk(world_size)[rank] if sequence else inputs).clone().requires_grad_()
        with measuring(lesson):
            outputs = layer(mine)
            wanted = result.detach().chunk(world_size)[rank] if sequence else result.detach()
            by = f"step {step + 1}, " * bool(step) + "with sequence=True, " * sequence
            expect_equal(outputs.detach(), wanted, f"rank {rank}: {by}the outputs")
            outputs.square().sum().backward()
        gradient = wanted_inputs.chunk(world_size)[rank] if sequence else wanted_inputs
        expect_equal(mine.grad, gradient, f"rank {rank}: {by}the gradient of the inputs")
        expect_equal(layer.first.grad, wanted_first.chunk(world_size)[rank], f"rank {rank}: {by}first.grad")
        expect_equal(layer.second.grad, wanted_second.chunk(world_size, dim=1)[rank], f"rank {rank}: {by}second.grad")
        with torch.no_grad():
            layer.first.sub_(1e-3 * layer.first.grad)
            layer.second.sub_(1e-3 * layer.second.grad)
        first, second = first - 1e-3 * wanted_first, second - 1e-3 * wanted_second


@Exercise(
    "the docstring: which rank holds which rows and columns; Shoeybi et al. 2019, section 3",
    (1, 2, 3, 5),
    most_bytes=lambda p: 2 * 2 * (p - 1) * 8 * 2 * WIDTH,
    hint="one all_reduce in forward and one in backward are enough, or a gather and a scatter in place of each",
    name="ParallelMLP",
)
def parallel_mlp(lesson: ModuleType) -> None:
    for dtype in (torch.float32, torch.float64):
        for sequence in (False, True):
            mlp(lesson, sequence, dtype)


def predicted() -> dict[str, Predicted]:
    return {
        "collectives in forward": Predicted(
            1, "The first matrix needs none: each rank computes its columns; only the second one's results are summed."
        ),
        "collectives in backward": Predicted(
            1, "Backward mirrors forward: only the gradient of the pair's input is summed over the ranks."
        ),
    }


SHOWN = Shown(4)
