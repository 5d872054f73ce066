"""Train a model on CPUs: ``training.py ddp|fsdp|hand STEPS perceptron|transformer|narrow|deep|convolution``."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

strategy, steps, kind = sys.argv[1], int(sys.argv[2]), sys.argv[3]
torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(0)
model: nn.Module
if kind == "perceptron":
    model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 512))
    x = torch.randn(256, 512)
elif kind == "narrow":
    model = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(64, 64), nn.ReLU())))
    x = torch.randn(32, 64)
elif kind == "deep":
    model = nn.Sequential(*(layer for _ in range(20) for layer in (nn.Linear(32, 32), nn.Tanh())))
    x = torch.randn(16, 32)
elif kind == "convolution":
    model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 3, 3, padding=1))
    x = torch.randn(8, 3, 16, 16)
else:
    model = nn.Sequential(*(nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0) for _ in range(3)))
    x = torch.randn(4, 64, 256)
if strategy == "ddp":
    model = DistributedDataParallel(model, bucket_cap_mb=0.02 if kind == "deep" else 25)
elif strategy == "fsdp":
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model.children():
        if isinstance(layer, nn.Linear | nn.TransformerEncoderLayer):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
torch.manual_seed(dist.get_rank())
x = torch.randn_like(x)
for _ in range(steps):
    optimizer.zero_grad()
    (model(x) - x).square().mean().backward()
    for parameter in model.parameters() if strategy == "hand" else ():
        dist.all_reduce(parameter.grad, dist.ReduceOp.AVG)
    optimizer.step()
dist.destroy_process_group()
