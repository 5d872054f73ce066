# kind: collective mismatch
# ranks: 4
import torch
import torch.distributed as dist

def sync(t, rank):
    if rank == 0:
        return dist.broadcast(t, src=0)  # reported: 0
    return dist.all_reduce(t)  # reported: 1-3  # fix: return dist.broadcast(t, src=0)

dist.init_process_group("gloo")
sync(torch.ones(2, 2), dist.get_rank())
