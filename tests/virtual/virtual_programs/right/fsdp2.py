# ranks: 2
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

torch.distributed.init_process_group("gloo")
torch.manual_seed(42)
layers = nn.Sequential(*(nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True) for _ in range(2)))
from torch.distributed.device_mesh import init_device_mesh
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
for layer in layers:
    fully_shard(layer, mesh=mesh)
fully_shard(layers, mesh=mesh)
optim = torch.optim.AdamW(layers.parameters(), lr=1e-3)
torch.manual_seed(dist.get_rank())
for _ in range(2):
    x = torch.randn(2, 5, 16)
    (layers(x) - x).abs().mean().backward()
    optim.step()
    optim.zero_grad()
dist.destroy_process_group()
