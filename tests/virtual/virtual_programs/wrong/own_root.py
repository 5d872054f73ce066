# kind: root
# ranks: 3
import os
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
weights = torch.rand(5)
dist.broadcast(weights, src=int(os.environ["LOCAL_RANK"]))  # reported: 0; 1; 2  # fix: dist.broadcast(weights, src=0)
