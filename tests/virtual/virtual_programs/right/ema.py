# ranks: 2
import copy
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
ddp = DDP(torch.nn.Linear(5, 5))
# Only rank 0 keeps and evaluates the average of the weights.
ema = copy.deepcopy(ddp.module) if rank == 0 else None
opt = torch.optim.SGD(ddp.parameters(), lr=0.1)
gen = torch.Generator().manual_seed(rank)
for step in range(4):
    opt.zero_grad()
    ddp(torch.randn(3, 5, generator=gen)).square().sum().backward()
    opt.step()
    if ema is not None:
        with torch.no_grad():
            for a, b in zip(ema.parameters(), ddp.module.parameters()):
                a.lerp_(b, 0.01)
dist.barrier()
dist.destroy_process_group()
