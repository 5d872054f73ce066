"""A program that joins a group of two ranks itself, and starts the other rank with ``subprocess``."""

import subprocess
import sys

import torch
import torch.distributed as dist

rank = len(sys.argv) - 1
if rank == 0:
    subprocess.Popen([sys.executable, "-c", "the other rank"])
dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29513", rank=rank, world_size=2)
dist.all_reduce(torch.ones(2))
