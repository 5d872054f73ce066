# ranks: 3
"""Unequal numbers of batches, with Join."""
import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DDP(torch.nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.01)
batches = [torch.full((2, 4), float(rank + i)) for i in range(2 + rank)]
with Join([model]):
    for b in batches:
        opt.zero_grad()
        model(b).sum().backward()
        opt.step()
print(rank, "has had", len(batches), "batches")
dist.destroy_process_group()
