# kind: shape
# ranks: 3
# A dictionary's order is not the same on all ranks.
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
metrics = {"loss": torch.zeros(1), "histogram": torch.zeros(10)}
names = list(metrics)
if dist.get_rank() == 2:
    names.reverse()
for name in names:  # fix: for name in sorted(names):
    dist.all_reduce(metrics[name])  # reported: 0-1; 2
