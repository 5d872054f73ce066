# kind: order
# ranks: 3
# Rank 0 logs its weights with the helper that all ranks use to average losses.
import torch
import torch.distributed as dist


def average(t):
    dist.all_reduce(t)
    return t / dist.get_world_size()


dist.init_process_group("gloo")
for step in range(3):
    average(torch.ones(1))  # reported: 1-2
    if dist.get_rank() == 0 and step == 1:  # fix: if step == 1:
        average(torch.ones(5))  # reported: 0
