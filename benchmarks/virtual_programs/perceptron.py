"""DDP of a perceptron of 0.27 million parameters: ``perceptron.py STEPS``."""

import sys

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
torch.manual_seed(dist.get_rank())
x = torch.randn(8, 512)
for _ in range(int(sys.argv[1])):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
