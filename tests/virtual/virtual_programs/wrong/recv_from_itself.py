# kind: deadlock
# ranks: 3
"""Rank 0 names itself where it should name the peer that answers."""
import torch
import torch.distributed as dist

dist.init_process_group(backend="gloo")
rank, data = dist.get_rank(), torch.rand(8)
if rank == 0:
    dist.recv(data, 0)  # reported: 0  # fix: dist.recv(data, 1)
else:
    dist.recv(data, 0)  # fix: if rank == 1: dist.send(data, 0)
