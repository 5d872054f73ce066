"""Modules without data are moved, and have another type."""

import torch
from torch import nn

torch.distributed.init_process_group("nccl")
model = nn.Linear(4, 4).to("cuda").to(torch.bfloat16)
model = nn.parallel.DistributedDataParallel(model, device_ids=[0])
model(torch.ones(2, 4, dtype=torch.bfloat16, device="cuda")).sum().backward()
print("moved", model.module.weight.dtype)
