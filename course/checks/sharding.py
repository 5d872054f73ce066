"""Checks of lesson 8: ZeRO by hand."""

from types import ModuleType

import torch
import torch.distributed as dist
from torch import nn

from course.checks.exercise import Exercise, Shown, WrongAnswerError, expect_close, expect_equal

SHAPES = (5, 3), (7,), (2, 2)  # 26 numbers, which 4 does not divide
LR, MOMENTUM = 0.1, 0.9


def model_state_bytes(lesson: ModuleType) -> None:
    n, p = 7_000_000_000, 8
    wanted = [16 * n, 4 * n + 12 * n / p, 2 * n + 14 * n / p, 16 * n / p]
    for stage, nbytes in enumerate(wanted):
        mistakes = {f"what stage {other} keeps": value for other, value in enumerate(wanted)}
        mistakes["gradients of 4 bytes: they are bf16"] = nbytes + 2 * n / (p if stage >= 2 else 1)
        mistakes["two numbers of state: there are three of fp32"] = nbytes - 4 * n / (p if stage else 1)
        what = f"model_state_bytes(7e9, 8, stage {stage}), in bytes,"
        expect_close(lesson.model_state_bytes(n, p, stage), nbytes, what, mistakes=mistakes)


def gradients(rank: int, step: int) -> list[torch.Tensor]:
    return [torch.arange(torch.Size(shape).numel()).reshape(shape).float() % 5 + rank - step for shape in SHAPES]


def sharded_momentum(lesson: ModuleType) -> None:
    rank, world_size = dist.get_rank(), dist.get_world_size()
    mine = [nn.Parameter(torch.ones(shape)) for shape in SHAPES]
    whole, buffers = ([torch.full(shape, value) for shape in SHAPES] for value in (1.0, 0.0))
    sharded = lesson.ShardedMomentum(mine, LR, MOMENTUM)
    numel = sum(parameter.numel() for parameter in mine)
    kept = sharded.momentum_buffer.numel()
    if kept != -(-numel // world_size):
        raise WrongAnswerError(
            f"momentum_buffer keeps {kept} numbers and should keep {-(-numel // world_size)}: one of {world_size} "
            f"equal parts of {numel}, padded to a multiple of the ranks",
            sharded.momentum_buffer,
            [0],
        )
    for step in range(3):
        for number, shape in enumerate(SHAPES):
            mine[number].grad = gradients(rank, step)[number]
            each = [gradients(r, step)[number] for r in range(world_size)]
            buffers[number] = MOMENTUM * buffers[number] + torch.stack(each).mean(0).reshape(shape)
            whole[number] -= LR * buffers[number]
        sharded.step()
        mine_of_them = torch.cat([buffer.flatten() for buffer in buffers])[kept * rank : kept * (rank + 1)]
        got = sharded.momentum_buffer[: len(mine_of_them)]
        expect_equal(got, mine_of_them, f"rank {rank}, step {step}: momentum_buffer")
        for number, (got, wanted) in enumerate(zip(mine, whole, strict=True)):
            expect_equal(got.detach(), wanted, f"rank {rank}, step {step}: parameter {number}")


def sharded_linear(lesson: ModuleType) -> None:
    rank, world_size = dist.get_rank(), dist.get_world_size()
    weight = torch.arange(32.0).reshape(8, 4) % 7 - 3
    layer = lesson.ShardedLinear(weight.clone())
    if layer.shard.shape != (8 // world_size, 4):
        raise WrongAnswerError(
            f"rank {rank}: shard is {list(layer.shard.shape)}; each rank keeps {8 // world_size} rows of 8, whole",
            layer.shard,
            [0] * layer.shard.ndim,
        )
    batches = [torch.arange(12.0).reshape(3, 4) % 5 + r for r in range(world_size)]
    whole = weight.clone().requires_grad_()
    for batch in batches:
        ((batch @ whole.T).square().sum() / world_size).backward()
    inputs = batches[rank].clone().requires_grad_()
    outputs = layer(inputs)
    expect_equal(outputs.detach(), batches[rank] @ weight.T, f"rank {rank}: the outputs")
    outputs.square().sum().backward()
    expect_equal(inputs.grad, 2 * (batches[rank] @ weight.T) @ weight, f"rank {rank}: the gradient of the inputs")
    if layer.shard.grad is None:
        raise WrongAnswerError(f"rank {rank}: shard.grad is missing after backward")
    expect_equal(layer.shard.grad, whole.grad.chunk(world_size)[rank], f"rank {rank}: shard.grad, the mean,")


EXERCISES = [
    Exercise(
        "model_state_bytes",
        model_state_bytes,
        "the question of lesson 8: bytes of a parameter, and what each stage divides (Rajbhandari et al. 2020)",
    ),
    Exercise(
        "ShardedMomentum",
        sharded_momentum,
        "torch.distributed.reduce_scatter_tensor and all_gather_into_tensor: shapes; torch.optim.SGD's formula",
        (1, 2, 4),
        most_bytes=lambda p: 3 * 2 * (p - 1) * 4 * -(-26 // p),
        hint="one reduce_scatter_tensor and one all_gather_into_tensor a step move as much as one all_reduce",
    ),
    Exercise(
        "ShardedLinear",
        sharded_linear,
        "torch.autograd.Function: what forward may keep and what backward returns; the docstring on shard.grad",
        (1, 2, 4),
        most_bytes=lambda p: 3 * (p - 1) * 4 * 32 // p,
        least_bytes=lambda p: 3 * (p - 1) * 4 * 32 // p,
        hint="forward gathers once, backward gathers once and scatters the gradient once",
    ),
]
PREDICTED = {"GB in stage 0": 112, "GB in stage 1": 38.5, "GB in stage 2": 26.25, "GB in stage 3": 14}
SHOWN = Shown(4)
