"""A transformer with fully_shard and tensor parallelism on a 2 x 2 mesh, for runs without data."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

WIDTH = 64

tensor = 2
mesh = init_device_mesh("cuda", (int(os.environ["WORLD_SIZE"]) // tensor, tensor), mesh_dim_names=("data", "tensor"))
with torch.device("meta"):
    model = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, 256), nn.ReLU(), nn.Linear(256, WIDTH)) for _ in range(2))
for block in model:
    parallelize_module(block, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(block, mesh=mesh["data"])
model.to_empty(device="cuda")
for parameter in model.parameters():
    nn.init.uniform_(parameter, -0.1, 0.1)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
torch.manual_seed(0)
data = TensorDataset(torch.randn(32, WIDTH))
sampler: DistributedSampler[object] = DistributedSampler(
    data, num_replicas=mesh["data"].size(), rank=mesh["data"].get_local_rank()
)
for (x,) in DataLoader(data, 8, sampler=sampler):
    x = x.cuda()
    for block in model:
        x = x + block(x)
    loss = x.square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
names = [None] * dist.get_world_size()
dist.all_gather_object(names, f"rank {dist.get_rank()}")
print(loss.item(), names[0], torch.cuda.get_device_name())
