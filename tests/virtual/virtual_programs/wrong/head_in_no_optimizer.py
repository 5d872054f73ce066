# kind: not in optimizer
# ranks: 2
# The head is replaced after the optimizer was created.
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.1)  # fix:
net[4] = nn.Linear(8, 3)
# fix: opt = torch.optim.SGD(net.parameters(), lr=0.1)
model = DistributedDataParallel(net)
torch.manual_seed(1 + dist.get_rank())
for _ in range(3):
    opt.zero_grad()
    nn.functional.cross_entropy(model(torch.randn(6, 4)), torch.randint(0, 3, (6,))).backward()
    opt.step()  # reported: 0-1
