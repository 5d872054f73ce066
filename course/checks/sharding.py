"""Checks of lesson 8: ZeRO by hand."""

from types import ModuleType

import torch
import torch.distributed as dist
from torch import nn

from course.checks.exercise import (
    SHARDING,
    Exercise,
    Predicted,
    Shown,
    WrongAnswerError,
    expect_close,
    expect_equal,
    measuring,
)

SHAPES = (5, 3), (7,), (2, 2)  # 26 numbers, of which 3, 4 and 5 ranks need padding
TINY = ((2,),)  # fewer numbers than ranks
LR, MOMENTUM = 0.1, 0.9
COLUMNS = 4  # columns of ShardedLinear's weight
STEPS = 3


@Exercise("the question of lesson 8: bytes per parameter, and what each stage divides (Rajbhandari et al. 2020)")
def model_state_bytes(lesson: ModuleType) -> None:
    for n, p in ((7_000_000_000, 8), (1_000_000, 64)):
        wanted = [16 * n, 4 * n + 12 * n / p, 2 * n + 14 * n / p, 16 * n / p]
        for stage, nbytes in enumerate(wanted):
            mistakes = {f"stage {other}": value for other, value in enumerate(wanted)}
            mistakes["gradients of 4 bytes: they are bf16"] = nbytes + 2 * n / (p if stage >= 2 else 1)
            mistakes["two numbers of optimizer state: there are three of fp32"] = nbytes - 4 * n / (p if stage else 1)
            call_text = f"model_state_bytes({n:.0e}, {p}, stage {stage}), in bytes,"
            expect_close(lesson.model_state_bytes(n, p, stage), nbytes, call_text, mistakes=mistakes)


def gradients(shapes: tuple[tuple[int, ...], ...], rank: int, step: int) -> list[torch.Tensor]:
    return [torch.arange(torch.Size(shape).numel()).reshape(shape).float() % 5 + rank - step for shape in shapes]


@Exercise(
    "torch.distributed.reduce_scatter_tensor and all_gather_into_tensor: shapes; the formula of torch.optim.SGD",
    (1, 2, 3, 5),
    calls=SHARDING,
    most_bytes=lambda p: 2 * (p - 1) * 4 * -(-26 // p),
    hint="one reduce_scatter_tensor and one all_gather_into_tensor per step send as much as one all_reduce",
    name="ShardedMomentum",
)
def sharded_momentum(lesson: ModuleType) -> None:
    check_momentum(lesson, SHAPES)
    check_momentum(lesson, TINY)


def check_momentum(lesson: ModuleType, shapes: tuple[tuple[int, ...], ...]) -> None:
    rank, world_size = dist.get_rank(), dist.get_world_size()
    mine = [nn.Parameter(torch.ones(shape)) for shape in shapes]
    parameters, buffers = ([torch.full(shape, value) for shape in shapes] for value in (1.0, 0.0))
    sharded = lesson.ShardedMomentum(mine, LR, MOMENTUM)
    numel = sum(parameter.numel() for parameter in mine)
    numbers = sharded.momentum_buffer.numel()
    if numbers != -(-numel // world_size):
        raise WrongAnswerError(
            f"momentum_buffer must have {-(-numel // world_size)} elements, not {numbers}: the "
            f"{numel} parameters are padded and divided equally among {world_size} ranks",
            sharded.momentum_buffer,
            [0],
        )
    for step in range(STEPS):
        for number, gradient in enumerate(gradients(shapes, rank, step)):
            mine[number].grad = gradient
            each = [gradients(shapes, r, step)[number] for r in range(world_size)]
            buffers[number] = MOMENTUM * buffers[number] + torch.stack(each).mean(0)
            parameters[number] -= LR * buffers[number]
        with measuring(lesson):
            sharded.step()
        flat = torch.cat([*(buffer.flatten() for buffer in buffers), torch.zeros(world_size)])
        wanted = flat[: max(numel, 1)][numbers * rank : numbers * (rank + 1)]
        got = sharded.momentum_buffer[: len(wanted)]
        expect_equal(got, wanted, f"rank {rank}, step {step + 1}: momentum_buffer")
        for number, (parameter, new) in enumerate(zip(mine, parameters, strict=True)):
            expect_equal(parameter.detach(), new, f"rank {rank}, step {step + 1}: parameter {number}")


def linear_bytes(p: int) -> int:
    return 3 * (p - 1) * 4 * COLUMNS * (8 // p + 1)


@Exercise(
    "torch.autograd.Function: what forward may keep and what backward returns; the docstring on shard.grad",
    (1, 2, 3, 5),
    calls=SHARDING,
    most_bytes=linear_bytes,
    least_bytes=linear_bytes,
    hint="forward gathers the weight once; backward gathers it once more and scatters the gradient once",
    name="ShardedLinear",
)
def sharded_linear(lesson: ModuleType) -> None:
    rank, world_size = dist.get_rank(), dist.get_world_size()
    rows = 8 // world_size + 1  # rows of each rank
    weight = torch.arange(float(rows * world_size * COLUMNS)).reshape(-1, COLUMNS) % 7 - 3
    layer = lesson.ShardedLinear(weight.clone())
    if layer.shard.shape != (rows, COLUMNS):
        raise WrongAnswerError(
            f"rank {rank}: shard must be {[rows, COLUMNS]}, not {list(layer.shard.shape)}: each rank keeps "
            f"{rows} of the {rows * world_size} rows",
            layer.shard,
            [0] * layer.shard.ndim,
        )
    for step in range(STEPS):
        when = f"rank {rank}, step {step + 1}: "
        batches = [torch.arange(12.0).reshape(3, COLUMNS) % 5 + r - step for r in range(world_size)]
        full_weight = weight.clone().requires_grad_()
        for batch in batches:
            ((batch @ full_weight.T).square().sum() / world_size).backward()
        assert full_weight.grad is not None
        inputs = batches[rank].clone().requires_grad_()
        layer.zero_grad()
        with measuring(lesson):
            outputs = layer(inputs)
            expect_equal(outputs.detach(), batches[rank] @ weight.T, f"{when}the outputs")
            outputs.square().sum().backward()
        expect_equal(inputs.grad, 2 * (batches[rank] @ weight.T) @ weight, f"{when}the gradient of the inputs")
        if layer.shard.grad is None:
            raise WrongAnswerError(f"{when}shard.grad is missing after backward")
        expect_equal(layer.shard.grad, full_weight.grad.chunk(world_size)[rank], f"{when}shard.grad, the mean,")
        with torch.no_grad():  # a weight that was gathered in the step before is wrong now
            layer.shard.sub_(0.01 * layer.shard.grad)
            weight = weight - 0.01 * full_weight.grad


def predicted() -> dict[str, Predicted]:
    return {
        "GB in stage 0": Predicted(112, "A parameter takes 2 + 2 + 12 bytes: bf16 weight and gradient, three of fp32."),
        "GB in stage 1": Predicted(
            38.5, "Stage 1 divides only the 12 bytes of optimizer state by 8: 4 + 12 / 8 bytes."
        ),
        "GB in stage 2": Predicted(26.25, "Stage 2 divides the gradients as well: 2 + 14 / 8 bytes per parameter."),
        "GB in stage 3": Predicted(14, "Stage 3 divides all 16 bytes by the 8 ranks."),
    }


SHOWN = Shown(4)
