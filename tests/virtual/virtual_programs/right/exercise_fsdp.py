# ranks: 4
"""Fully sharded data parallel by hand: each rank keeps a part of every weight, and gathers it where it is needed."""
import torch
import torch.distributed as dist
from torch import nn


class Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx, shard, shape):
        gathered = shard.new_empty(shard.numel() * dist.get_world_size())
        dist.all_gather_into_tensor(gathered, shard)
        return gathered[: shape.numel()].view(shape)

    @staticmethod
    def backward(ctx, gradient):
        size = -(-gradient.numel() // dist.get_world_size())
        flat = nn.functional.pad(gradient.flatten(), (0, size * dist.get_world_size() - gradient.numel()))
        mine = flat.new_empty(size)
        dist.reduce_scatter_tensor(mine, flat)
        return mine / dist.get_world_size(), None


class FullyShardedLinear(nn.Module):
    def __init__(self, linear):
        super().__init__()
        n, rank = dist.get_world_size(), dist.get_rank()
        self.shapes = linear.weight.shape, linear.bias.shape
        self.shards = nn.ParameterList()
        for parameter in (linear.weight, linear.bias):
            size = -(-parameter.numel() // n)
            padded = nn.functional.pad(parameter.detach().flatten(), (0, size * n - parameter.numel()))
            self.shards.append(nn.Parameter(padded[rank * size : (rank + 1) * size].clone()))

    def forward(self, x):
        weight, bias = (Gathered.apply(shard, shape) for shard, shape in zip(self.shards, self.shapes))
        return nn.functional.linear(x, weight, bias)


dist.init_process_group("gloo")
torch.manual_seed(0)
alone = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3))
sharded = nn.Sequential(*(FullyShardedLinear(layer) if isinstance(layer, nn.Linear) else layer for layer in alone))
plain, many = (torch.optim.AdamW(net.parameters(), lr=0.01) for net in (alone, sharded))
for step in range(3):
    batch = torch.randn(8, 5, generator=torch.Generator().manual_seed(step))
    mine = batch.chunk(dist.get_world_size())[dist.get_rank()]
    for net, optimizer, x in ((alone, plain, batch), (sharded, many, mine)):
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
assert torch.allclose(sharded(batch), alone(batch), atol=1e-5)
dist.destroy_process_group()
