# kind: averaged twice
# ranks: 2
# DDP has already averaged the gradients.
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for _ in range(3):
    opt.zero_grad()
    model(torch.randn(4, 4)).square().mean().backward()
    for p in model.parameters():  # fix:
        p.grad /= dist.get_world_size()  # fix:
    opt.step()  # reported: 0-1
