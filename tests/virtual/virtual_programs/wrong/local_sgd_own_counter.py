# kind: early exit
# ranks: 2
# Weights are averaged after every fourth step of a rank, and one rank skips a step.
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = nn.Linear(6, 6)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
done = 0
torch.manual_seed(rank)
for step in range(12):
    optimizer.zero_grad()
    model(torch.randn(4, 6)).square().mean().backward()
    overflow = rank == 1 and step == 5
    # fix: overflow = torch.tensor(float(overflow))
    # fix: dist.all_reduce(overflow)
    if not overflow:
        optimizer.step()
        done += 1
    if done % 4 == 0:  # fix: if (step + 1) % 4 == 0:
        for p in model.parameters():
            dist.all_reduce(p.data)  # reported: 0
            p.data /= dist.get_world_size()
