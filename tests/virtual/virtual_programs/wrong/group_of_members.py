# kind: new_group
# ranks: 4
# Only the members of the group create it.
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
# fix: evens = dist.new_group([0, 2])
if rank % 2 == 0:
    evens = dist.new_group([0, 2])  # reported: 0, 2  # fix:
    dist.all_reduce(torch.ones(1), group=evens)
dist.barrier()
