# kind: undefined result
# ranks: 2
# options: --strict
# reduce leaves on other ranks what nobody should read, and all decide by it.
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
best = 1e9
for epoch in range(2):
    loss = torch.tensor([2.0 - epoch])
    dist.reduce(loss, dst=0, op=dist.ReduceOp.SUM)  # fix: dist.all_reduce(loss)
    mean = loss.item() / dist.get_world_size()  # reported: 1
    if mean < best:
        best = mean
