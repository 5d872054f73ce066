"""All ranks reduce 1 MiB: ``reductions.py TIMES``."""

import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
tensor = torch.ones(1 << 18)
for _ in range(int(sys.argv[1])):
    dist.all_reduce(tensor)
