# kind: not in DDP
# ranks: 2
# The body is frozen when DDP wraps the model, and trained from the second epoch on.
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 2))
net[0].requires_grad_(False)
model = DDP(net)
torch.manual_seed(dist.get_rank())
for epoch in range(2):
    if epoch == 1:
        net[0].requires_grad_(True)
        # fix: model = DDP(net)
    optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(4, 6)).square().mean().backward()  # reported: 0-1
        optimizer.step()
