# kind: early exit
# ranks: 2
# A rank skips a batch that contains a NaN, so DDP on the other rank waits for its gradients.
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
r = dist.get_rank()
model = DDP(torch.nn.Linear(2, 2))
for step in range(4):
    x = torch.ones(3, 2)
    if r == 1 and step == 2:
        x[0, 0] = float("nan")
    # fix: bad = torch.isnan(x).any().float()
    # fix: dist.all_reduce(bad)
    if torch.isnan(x).any():  # fix: if bad:
        continue
    model(x).sum().backward()  # reported: 0
