# kind: exception
# ranks: 2
# options: --gpu
# A metric is summed where it was counted: on the CPU, which NCCL does not have.
import os

import torch
import torch.distributed as dist

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
loss = torch.ones(3, device="cuda").mean()
seen = torch.tensor([loss.item(), 1.0])  # fix: seen = torch.tensor([loss.item(), 1.0], device="cuda")
dist.all_reduce(seen)  # reported
