import torch
import torch.distributed as dist
from torch import nn


def model_state_bytes(parameters: int, world_size: int, stage: int) -> float:
    weights, gradients, state = 2 * parameters, 2 * parameters, 12 * parameters
    if stage >= 1:
        state /= world_size
    if stage >= 2:
        gradients /= world_size
    if stage >= 3:
        weights /= world_size
    return weights + gradients + state


class ShardedMomentum:
    def __init__(self, parameters: list[nn.Parameter], lr: float, momentum: float) -> None:
        self.parameters, self.lr, self.momentum = list(parameters), lr, momentum
        self.numel = sum(parameter.numel() for parameter in self.parameters)
        self.part = -(-self.numel // dist.get_world_size())
        self.momentum_buffer = torch.zeros(self.part)

    def flatten(self, tensors: list[torch.Tensor]) -> torch.Tensor:
        flat = torch.zeros(self.part * dist.get_world_size())
        flat[: self.numel] = torch.cat([tensor.flatten() for tensor in tensors])
        return flat

    def step(self) -> None:
        rank, world_size = dist.get_rank(), dist.get_world_size()
        gradient = torch.empty(self.part)
        dist.reduce_scatter_tensor(gradient, self.flatten([p.grad for p in self.parameters]))
        self.momentum_buffer.mul_(self.momentum).add_(gradient / world_size)
        weights = self.flatten([p.detach() for p in self.parameters])
        mine = weights[rank * self.part : (rank + 1) * self.part] - self.lr * self.momentum_buffer
        dist.all_gather_into_tensor(weights, mine)
        sizes = [p.numel() for p in self.parameters]
        with torch.no_grad():
            for parameter, new in zip(self.parameters, weights[: self.numel].split(sizes), strict=True):
                parameter.copy_(new.view_as(parameter))


def gather(shard: torch.Tensor) -> torch.Tensor:
    weight = shard.new_empty(shard.shape[0] * dist.get_world_size(), shard.shape[1])
    dist.all_gather_into_tensor(weight, shard)
    return weight


class GatheredLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs, shard):
        ctx.save_for_backward(inputs, shard)
        return inputs @ gather(shard).T

    @staticmethod
    def backward(ctx, gradient):
        inputs, shard = ctx.saved_tensors
        product = gradient.flatten(0, -2).T @ inputs.flatten(0, -2)
        mine = torch.empty_like(shard)
        dist.reduce_scatter_tensor(mine, product.contiguous())
        return gradient @ gather(shard), mine / dist.get_world_size()


class ShardedLinear(nn.Module):
    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        rows = weight.shape[0] // dist.get_world_size()
        self.shard = nn.Parameter(weight[dist.get_rank() * rows : (dist.get_rank() + 1) * rows].clone())

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return GatheredLinear.apply(inputs, self.shard)
