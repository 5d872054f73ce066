# kind: parameter mismatch
# ranks: 3
# Gradients of weights are averaged, but gradients of biases, which all start at zero, are not.
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
for layer in (net[0], net[2]):
    nn.init.zeros_(layer.bias)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
torch.manual_seed(1 + dist.get_rank())
for _ in range(3):
    opt.zero_grad()
    (net(torch.randn(3, 4)) - 1).square().mean().backward()
    for layer in (net[0], net[2]):
        dist.all_reduce(layer.weight.grad)
        layer.weight.grad /= dist.get_world_size()
        # fix: dist.all_reduce(layer.bias.grad)
        # fix: layer.bias.grad /= dist.get_world_size()
    opt.step()  # reported: 0; 1; 2
