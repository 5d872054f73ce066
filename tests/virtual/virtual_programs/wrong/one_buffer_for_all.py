# ranks: 3
# kind: buffer in use
"""Every message is received into the same tensor, before any is waited for."""
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
buffer = torch.zeros(4)
if rank == 0:
    handles = [dist.irecv(buffer, source) for source in range(1, world)]  # reported: 0  # fix: handles = [dist.irecv(torch.zeros(4), source) for source in range(1, world)]
    for handle in handles:
        handle.wait()
else:
    dist.send(torch.full((4,), float(rank)), 0)
dist.destroy_process_group()
