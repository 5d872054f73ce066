# kind: order
# ranks: 2
import torch, torch.distributed as dist
dist.init_process_group("gloo")
a, b = torch.zeros(3), torch.zeros(5)
if dist.get_rank() == 0:
    dist.all_reduce(a)  # reported: 0
    dist.all_reduce(b)
else:
    dist.all_reduce(b)  # reported: 1  # fix: dist.all_reduce(a)
    dist.all_reduce(a)  # fix: dist.all_reduce(b)
