# kind: early exit
# ranks: 3
"""Data parallel training on shards that are not of one length."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
data = torch.randn(32, 4).tensor_split([8, 20])[rank]
model = DDP(torch.nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in data.split(4):  # fix: for batch in data[:8].split(4):
    opt.zero_grad()
    model(batch).mean().backward()  # reported: 1-2
    opt.step()
print("done", rank)
