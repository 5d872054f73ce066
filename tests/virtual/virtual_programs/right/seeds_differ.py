# ranks: 2
# Equal weights, then a different seed on each rank, so that dropout differs.
import random
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
torch.manual_seed(1234)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 1)))
torch.manual_seed(1234 + dist.get_rank())
random.seed(dist.get_rank())
opt = torch.optim.Adam(model.parameters())
for _ in range(3):
    opt.zero_grad()
    model(torch.randn(16, 8)).mean().backward()
    opt.step()
dist.destroy_process_group()
