# kind: parameter mismatch
# ranks: 2
import torch
import torch.distributed as dist
# fix: from contextlib import nullcontext
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(4, 2))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for i in range(4):
    with model.no_sync():   # accumulates, and the last one should not be in here  # fix: with model.no_sync() if i % 2 == 0 else nullcontext():
        model(torch.randn(3, 4)).square().mean().backward()
    if i % 2 == 1:
        opt.step()  # reported: 0; 1
        opt.zero_grad()
