# kind: buffer mismatch
# ranks: 2
# options: --strict
# Gradients are averaged by hand, and each rank evaluates by the running statistics of its own batches.
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
torch.manual_seed(dist.get_rank())
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(16, 4) + dist.get_rank()).square().mean().backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()
    optimizer.step()
# fix: for one in model.buffers(): dist.broadcast(one, src=0)
model.eval()  # reported: 0; 1
total = model(torch.ones(2, 4)).sum().detach()
dist.all_reduce(total)
