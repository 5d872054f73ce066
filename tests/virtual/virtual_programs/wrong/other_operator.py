# kind: operator
# ranks: 2
import torch, torch.distributed as dist
from torch.distributed import ReduceOp
dist.init_process_group("gloo")
op = ReduceOp.MAX if dist.get_rank() else ReduceOp.SUM  # fix: op = ReduceOp.SUM
dist.all_reduce(torch.ones(4), op=op)  # reported: 0; 1
