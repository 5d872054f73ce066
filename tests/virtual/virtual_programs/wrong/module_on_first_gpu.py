# kind: exception
# ranks: 2
# options: --gpu
# Each rank moves its module to the GPU that is the first for all.
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("nccl")
# fix: torch.cuda.set_device(dist.get_rank())
model = nn.Linear(4, 4).cuda()
model = nn.parallel.DistributedDataParallel(model)  # reported
model(torch.ones(2, 4).cuda()).sum().backward()
