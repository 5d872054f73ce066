# ranks: 2
# Each rank has its own statistics until the next forward, in which DDP broadcasts those of rank 0.
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DDP(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for _ in range(3):
    opt.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    opt.step()
model.eval()
with torch.no_grad():
    print(model(torch.ones(2, 4)).sum().item())
dist.destroy_process_group()
