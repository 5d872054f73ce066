# ranks: 2
# kind: buffer mismatch
"""The module itself is evaluated, by statistics that nobody has made equal."""
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8))
model = nn.parallel.DistributedDataParallel(model, broadcast_buffers=False)
opt = torch.optim.SGD(model.parameters(), 1e-2)
torch.manual_seed(dist.get_rank())
for _ in range(3):
    opt.zero_grad()
    model(torch.randn(8, 4) + dist.get_rank()).square().mean().backward()
    opt.step()
# fix: for one in model.module.buffers(): dist.broadcast(one, src=0)
model.eval()  # reported: 0; 1
score = model.module(torch.ones(2, 4)).sum()
dist.all_reduce(score)
dist.destroy_process_group()
