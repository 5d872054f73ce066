# ranks: 2
import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DDP(torch.nn.Sequential(*[torch.nn.Linear(10, 10) for _ in range(4)]))
opt = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=0.01)
torch.manual_seed(dist.get_rank())
for _ in range(3):
    opt.zero_grad()
    model(torch.randn(4, 10)).pow(2).mean().backward()
    opt.step()
opt.consolidate_state_dict(to=0)
if dist.get_rank() == 0:
    print(len(opt.state_dict()["state"]), "states")
dist.destroy_process_group()
