# ranks: 2
"""Batch norm over all ranks, written out with differentiable collectives."""
import torch
import torch.distributed as dist
import torch.distributed.nn.functional as F
from torch import nn


class SyncNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.register_buffer("running_mean", torch.zeros(width))
        self.register_buffer("running_var", torch.ones(width))

    def forward(self, x):
        if self.training:
            stats = F.all_reduce(torch.cat([x.mean(0), x.pow(2).mean(0)])) / dist.get_world_size()
            mean, square = stats.chunk(2)
            var = square - mean**2
            with torch.no_grad():
                self.running_mean.lerp_(mean, 0.1)
                self.running_var.lerp_(var, 0.1)
        else:
            mean, var = self.running_mean, self.running_var
        return (x - mean) * (var + 1e-5).rsqrt() * self.weight + self.bias


dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(4, 6), SyncNorm(6), nn.Linear(6, 1)), broadcast_buffers=False)
opt = torch.optim.SGD(model.parameters(), 0.1)
torch.manual_seed(dist.get_rank())
for _ in range(3):
    opt.zero_grad()
    model(torch.randn(8, 4)).pow(2).mean().backward()
    opt.step()
model.eval()
model(torch.zeros(2, 4))
dist.destroy_process_group()
