# kind: not in DDP
# ranks: 3
# The head is replaced after DDP wrapped the model. With find_unused_parameters, DDP does not complain.
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DDP(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 100)), find_unused_parameters=True)
model.module[2] = nn.Linear(8, 3)
# fix: model = DDP(model.module)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for _ in range(4):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).square().mean().backward()  # reported: 0-2
    optimizer.step()
