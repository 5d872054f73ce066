"""DDP of ResNet-18, two images a rank: ``resnet.py STEPS``."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torchvision.models import resnet18

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(resnet18(num_classes=10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
torch.manual_seed(dist.get_rank())
for _ in range(int(sys.argv[1])):
    optimizer.zero_grad()
    model(torch.randn(2, 3, 32, 32)).square().mean().backward()
    optimizer.step()
