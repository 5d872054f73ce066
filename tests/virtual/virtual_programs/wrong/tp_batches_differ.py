# ranks: 4
# kind: input mismatch
"""Every rank draws a batch of its own, also those that share one layer."""
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
torch.manual_seed(dist.get_rank())  # fix: torch.manual_seed(mesh["dp"].get_local_rank())
x = torch.randn(4, 8)
model(x).square().mean().backward()  # reported: 0-1; 2-3
dist.destroy_process_group()
