# kind: collective mismatch
# ranks: 3
# The number of epochs is read from a file that one host does not have up to date.
import torch, torch.distributed as dist
dist.init_process_group("gloo")
epochs = {0: 3, 1: 3, 2: 2}[dist.get_rank()]  # fix: epochs = 2
for e in range(epochs):
    t = torch.ones(1)
    dist.all_reduce(t)  # reported: 0-1
best = [None]
dist.broadcast_object_list(best, src=0)  # reported: 2
