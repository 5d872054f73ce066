# kind: exception
# ranks: 2
# options: --gpu
# No rank chooses its GPU: all are on the first.
import torch
import torch.distributed as dist

dist.init_process_group("nccl")
# fix: torch.cuda.set_device(dist.get_rank())
x = torch.ones(4).cuda()
dist.all_reduce(x)  # reported: 0; 1
