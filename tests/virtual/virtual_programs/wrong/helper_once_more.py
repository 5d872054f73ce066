# kind: early exit
# ranks: 3
# The extra call of rank 0 matches the next call of the other ranks, so it only shows at the end.
import torch
import torch.distributed as dist


def average(t):
    dist.all_reduce(t)  # reported: 0
    return t / dist.get_world_size()


dist.init_process_group("gloo")
for step in range(3):
    average(torch.ones(1))
    if dist.get_rank() == 0 and step == 0:  # fix: if step == 0:
        print("first", average(torch.zeros(1)))
