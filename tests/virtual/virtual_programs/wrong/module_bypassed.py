# kind: parameter mismatch
# ranks: 2
# The loop calls the inner module, so DDP does not see the forward pass.
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
ddp = DDP(torch.nn.Linear(4, 2))
opt = torch.optim.SGD(ddp.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank() + 1)
for _ in range(4):
    opt.zero_grad()
    ddp.module(torch.randn(3, 4)).square().mean().backward()  # fix: ddp(torch.randn(3, 4)).square().mean().backward()
    opt.step()  # reported: 0; 1
