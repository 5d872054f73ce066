# ranks: 2
"""Column- and row-parallel layers with one's own autograd functions; the norm is held by both ranks."""
import torch
import torch.distributed as dist
from torch import nn


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous().clone()
        dist.all_reduce(grad)
        return grad


class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad


class Net(nn.Module):
    def __init__(self, rank, n):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        full_up, full_down = torch.randn(16, 8) / 4, torch.randn(8, 16) / 4
        self.up = nn.Parameter(full_up.chunk(n, 0)[rank].clone())
        self.down = nn.Parameter(full_down.chunk(n, 1)[rank].clone())
        self.bias = nn.Parameter(torch.zeros(16 // n))

    def forward(self, x):
        h = torch.relu(Copy.apply(self.norm(x)) @ self.up.t() + self.bias)
        return Reduce.apply(h @ self.down.t())


def main():
    dist.init_process_group("gloo")
    rank, n = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    net = Net(rank, n)
    opt = torch.optim.Adam(net.parameters(), 1e-2)
    for step in range(3):
        x = torch.randn(4, 8, generator=torch.Generator().manual_seed(step))
        opt.zero_grad()
        (net(x) - x).pow(2).mean().backward()
        opt.step()
    dist.destroy_process_group()


main()
