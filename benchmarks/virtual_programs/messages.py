"""One rank sends, and the other receives: ``messages.py TIMES``."""

import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
tensor = torch.ones(4)
for _ in range(int(sys.argv[1])):
    if dist.get_rank() == 0:
        dist.send(tensor, 1)
    else:
        dist.recv(tensor, 0)
