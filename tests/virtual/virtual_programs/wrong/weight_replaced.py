# kind: not in DDP
# ranks: 2
# A layer gets a new weight after DDP has wrapped the module.
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
model = DDP(net)  # fix:
torch.manual_seed(3)
net[0].weight = nn.Parameter(torch.randn(4, 4))
# fix: model = DDP(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
torch.manual_seed(50 + dist.get_rank())
for _ in range(4):
    optimizer.zero_grad()
    model(torch.randn(6, 4)).mean().backward()  # reported
    optimizer.step()
