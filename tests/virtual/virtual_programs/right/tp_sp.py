# ranks: 2
import torch
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, PrepareModuleInput, parallelize_module


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8)

    def forward(self, x):
        return self.down(torch.relu(self.up(self.norm(x))))


mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
torch.manual_seed(5)
model = parallelize_module(MLP(), mesh, {
    "norm": SequenceParallel(),
    "up": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1)),
    "down": RowwiseParallel(output_layouts=Replicate()),
})
opt = torch.optim.SGD(model.parameters(), lr=0.05, foreach=False)
for step in range(3):
    torch.manual_seed(step)  # all ranks of a tensor-parallel group need the same batch
    out = model(torch.randn(2, 6, 8))
    out.square().mean().backward()
    opt.step()
    opt.zero_grad()
