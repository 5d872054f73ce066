# ranks: 4
"""A vocabulary that is spread over two ranks, whose loss is, too; the other dimension shards the rest."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(16, 8), nn.LayerNorm(8), nn.Linear(8, 16))
plan = {
    "0": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
    "1": SequenceParallel(),
    "2": ColwiseParallel(input_layouts=Shard(1), use_local_output=False),
}
parallelize_module(model, mesh["tp"], plan)
fully_shard(model, mesh=mesh["dp"])
opt = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
torch.manual_seed(mesh["dp"].get_local_rank())
for _ in range(3):
    tokens = torch.randint(0, 16, (2, 6))
    with loss_parallel():
        F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
    opt.step()
    opt.zero_grad()
dist.destroy_process_group()
