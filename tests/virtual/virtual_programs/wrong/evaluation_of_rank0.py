# kind: collective mismatch
# ranks: 2
# Rank 0 evaluates through the DDP module, whose forward broadcasts the running statistics.
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
model = DDP(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
opt = torch.optim.SGD(model.parameters(), 0.1)
for epoch in range(2):
    opt.zero_grad()
    model(torch.randn(8, 4)).sum().backward()
    opt.step()
    if dist.get_rank() == 0:
        with torch.no_grad():
            print(model(torch.randn(8, 4)).sum())  # reported: 0  # fix: print(model.module(torch.randn(8, 4)).sum())
    dist.barrier()  # reported: 1
