# ranks: 2
"""Sequence parallel by hand: each rank's norms see a part of the sequence, so their gradients are summed."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()


def gather(x):
    out = x.new_empty(world * len(x), x.shape[1])
    dist.all_gather_into_tensor(out, x.contiguous())
    return out


def scatter(x):
    out = x.new_empty(len(x) // world, x.shape[1])
    dist.reduce_scatter_tensor(out, x.contiguous())
    return out


class Gather(torch.autograd.Function):
    forward, backward = staticmethod(lambda ctx, x: gather(x)), staticmethod(lambda ctx, g: scatter(g))


class Scatter(torch.autograd.Function):
    forward, backward = staticmethod(lambda ctx, x: scatter(x)), staticmethod(lambda ctx, g: gather(g))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up = nn.LayerNorm(width), nn.Linear(width, 2 * width // world)
        self.down = nn.Linear(2 * width // world, width, bias=False)

    def forward(self, x):
        return x + Scatter.apply(self.down(F.gelu(self.up(Gather.apply(self.norm(x))))))


torch.manual_seed(rank)
model = nn.Sequential(Block(8), Block(8))
opt = torch.optim.AdamW(model.parameters(), 1e-2)
data = torch.Generator().manual_seed(0)
for _ in range(3):
    x = torch.randn(8, 8, generator=data).chunk(world)[rank]
    opt.zero_grad()
    (model(x) - x).square().mean().backward()
    for block in model:
        for parameter in block.norm.parameters():
            dist.all_reduce(parameter.grad)
    opt.step()
dist.destroy_process_group()
