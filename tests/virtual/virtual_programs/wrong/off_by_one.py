# kind: peer
# ranks: 4
# A hand-written scatter sends part i to rank i + 1.
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, n = dist.get_rank(), dist.get_world_size()
part = torch.zeros(2)
if rank == 0:
    for i, p in enumerate(torch.arange(6.0).view(3, 2)[:2]):
        dist.send(p.clone(), dst=i + 2)  # fix: dist.send(p.clone(), dst=i + 1)
elif rank < 3:
    dist.recv(part, src=0)  # reported: 1
