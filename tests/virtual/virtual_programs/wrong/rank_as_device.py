# kind: exception
# ranks: 4
# options: --gpu --per-node 2
# The rank of the world is taken for the GPU's number, on two machines.
import os

import torch
import torch.distributed as dist

dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank())  # reported  # fix: torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.barrier()
