# kind: parameter mismatch
# ranks: 3
# Rank 0 loads a checkpoint after DDP has made the models equal.
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(3, 1))
if dist.get_rank() == 0:
    model.module.load_state_dict({"weight": torch.ones(1, 3), "bias": torch.ones(1)})
# fix: for p in model.parameters(): dist.broadcast(p.data, 0)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    opt.zero_grad()
    model(torch.ones(2, 3)).mean().backward()
    opt.step()  # reported: 0; 1-2
