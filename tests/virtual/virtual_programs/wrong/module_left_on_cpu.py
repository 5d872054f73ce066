# kind: exception
# ranks: 2
# options: --gpu
# The module is wrapped before it is moved.
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank())
model = nn.parallel.DistributedDataParallel(nn.Linear(2, 2), device_ids=[dist.get_rank()])  # told
model.cuda()
