"""Modules without data are moved, change their dtype, and make two steps with DDP."""

import torch
from torch import nn

torch.distributed.init_process_group("nccl")
rank = torch.distributed.get_rank()
torch.cuda.set_device(rank)
model = nn.Linear(4, 4).to("cuda").to(torch.bfloat16)
model = nn.parallel.DistributedDataParallel(model, device_ids=[rank])
for _ in range(3):
    model(torch.ones(2, 4, dtype=torch.bfloat16, device="cuda")).sum().backward()
print("moved", model.module.weight.dtype)
