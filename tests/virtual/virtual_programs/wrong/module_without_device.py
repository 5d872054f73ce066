# kind: exception
# ranks: 2
# options: --gpu
# The batch is moved to the GPU, and the module is not.
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank())
linear = nn.Linear(2, 2)  # fix: linear = nn.Linear(2, 2).cuda()
model = nn.parallel.DistributedDataParallel(linear)  # reported
model(torch.randn(4, 2).cuda()).sum().backward()
