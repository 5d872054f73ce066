# kind: optimizer state mismatch
# ranks: 3
# The scale of one rank grows earlier than those of the others.
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DDP(nn.Linear(6, 3))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=2 if rank == 2 else 2000)  # fix: scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
torch.manual_seed(rank)
for _ in range(5):
    optimizer.zero_grad()
    scaler.scale(model(torch.randn(4, 6)).square().mean()).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)  # reported: 0-1; 2
    scaler.update()
