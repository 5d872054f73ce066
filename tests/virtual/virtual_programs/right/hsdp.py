# ranks: 4
"""Hybrid sharding: sharded over two ranks, replicated over two pairs."""
import torch, torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
torch.manual_seed(1)
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
fully_shard(model[0], mesh=mesh)
fully_shard(model, mesh=mesh)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(10 + dist.get_rank())
for _ in range(2):
    model(torch.randn(3, 8)).pow(2).sum().backward()
    opt.step(), opt.zero_grad()
dist.destroy_process_group()
