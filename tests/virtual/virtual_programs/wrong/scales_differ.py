# kind: optimizer state mismatch
# ranks: 2
# The gradient scalers of the ranks start with different scales.
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DDP(nn.Linear(10, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** (8 + rank))  # fix: scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8)
torch.manual_seed(rank)
for _ in range(5):
    optimizer.zero_grad()
    scaler.scale(model(torch.randn(4, 10)).square().mean()).backward()
    scaler.step(optimizer)  # reported: 0; 1
    scaler.update()
