# kind: same dropout seed
# ranks: 2
# options: --strict
# One seed for all, so every rank drops the same units.
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
torch.manual_seed(42)
model = DDP(nn.Sequential(nn.Linear(4, 32), nn.Dropout(0.5), nn.Linear(32, 1)))
# fix: torch.manual_seed(42 + dist.get_rank())
data = torch.arange(64.0).view(16, 4)[dist.get_rank() :: dist.get_world_size()]
opt = torch.optim.SGD(model.parameters(), lr=1e-4)
for batch in data.split(4):
    opt.zero_grad()
    model(batch).square().mean().backward()  # reported: 0-1
    opt.step()
