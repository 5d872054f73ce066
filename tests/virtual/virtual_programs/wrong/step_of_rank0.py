# kind: skipped step
# ranks: 3
# Only rank 0 steps.
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(3, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(3):
    opt.zero_grad()
    model(torch.ones(2, 3)).mean().backward()
    if dist.get_rank() == 0:  # fix: if True:
        opt.step()  # reported: 0
