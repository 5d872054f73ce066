# kind: no gradients
# ranks: 2
# The optimizer holds the parameters that fully_shard has replaced.
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
model = torch.nn.Linear(4, 4)
opt = torch.optim.SGD(model.parameters(), lr=0.1)  # fix:
fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
# fix: opt = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    model(torch.ones(2, 4)).sum().backward()
    opt.step()  # reported: 0-1
    opt.zero_grad()
