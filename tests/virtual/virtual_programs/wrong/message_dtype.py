# kind: message size
# ranks: 2
import torch, torch.distributed as dist
dist.init_process_group("gloo")
if dist.get_rank() == 0:
    dist.send(torch.arange(4), 1)  # reported: 0
else:
    ids = torch.empty(4)  # fix: ids = torch.empty(4, dtype=torch.int64)
    dist.recv(ids, 0)  # reported: 1
