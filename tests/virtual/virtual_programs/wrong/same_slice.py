# kind: same batch
# ranks: 3
# options: --strict
# The slice does not know the rank.
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
torch.manual_seed(0)
x = torch.randn(48, 4)
B = 4
model = DDP(torch.nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(4):
    batch = x[i * B : (i + 1) * B]  # fix: batch = x[(i * dist.get_world_size() + dist.get_rank()) * B :][:B]
    opt.zero_grad()
    model(batch).square().mean().backward()  # reported: 0-2
    opt.step()
