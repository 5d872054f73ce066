# kind: exception
# ranks: 2
# options: --gpu
# The module is wrapped before it is moved.
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank())
linear = nn.Linear(2, 2)  # fix: linear = nn.Linear(2, 2).cuda()
model = nn.parallel.DistributedDataParallel(linear, device_ids=[dist.get_rank()])  # reported
model.cuda()
