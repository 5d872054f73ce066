# ranks: 2
# kind: parameter mismatch
# parameters: split
"""Dropout behind the all_reduce leaves out other units on each rank, so that norms drift apart."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

dist.init_process_group("gloo")
world = dist.get_world_size()


class Enter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        dist.all_reduce(gradient)
        return gradient


class Leave(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.drop = nn.LayerNorm(width), nn.Dropout(0.2)
        self.up = nn.Linear(width, 4 * width // world, bias=False)
        self.down = nn.Linear(4 * width // world, width, bias=False)

    def forward(self, x):
        return x + self.drop(Leave.apply(self.down(F.gelu(self.up(Enter.apply(self.norm(x)))))))


torch.manual_seed(dist.get_rank())
model = nn.Sequential(Block(8), Block(8))
# fix: torch.manual_seed(1)
opt = torch.optim.Adam(model.parameters(), 1e-2)
data = torch.Generator().manual_seed(0)
for _ in range(3):
    x = torch.randn(4, 8, generator=data)
    opt.zero_grad()
    (model(x) - x).square().mean().backward()
    opt.step()  # reported: 0; 1
dist.destroy_process_group()
