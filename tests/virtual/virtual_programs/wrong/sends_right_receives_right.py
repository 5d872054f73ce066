# kind: deadlock
# ranks: 4
# Every rank sends to its right neighbor with isend, and then receives from the same neighbor.
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
mine, theirs = torch.ones(3), torch.zeros(3)
sending = dist.isend(mine, (rank + 1) % world)
dist.recv(theirs, (rank + 1) % world)  # reported: 0-3  # fix: dist.recv(theirs, (rank - 1) % world)
sending.wait()
