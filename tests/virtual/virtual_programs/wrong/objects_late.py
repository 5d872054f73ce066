# kind: collective mismatch
# ranks: 3
# Rank 0 gathers names while the other ranks reduce the loss.
import torch, torch.distributed as dist
dist.init_process_group("gloo")
if dist.get_rank() == 0:  # fix: if True:
    everyone = [None] * 3
    dist.all_gather_object(everyone, "zero")  # reported: 0
loss = torch.ones(1)
dist.all_reduce(loss)  # reported: 1-2
