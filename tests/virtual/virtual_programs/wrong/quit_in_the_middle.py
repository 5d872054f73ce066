# kind: early exit
# ranks: 4
import sys
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
shards = {0: "a.bin", 1: "b.bin", 3: "d.bin"}
if rank not in shards:
    print("nothing to do for rank", rank)
    sys.exit(0)  # fix:
total = torch.tensor([float(len(shards[rank]))])  # fix: total = torch.tensor([float(len(shards.get(rank, "")))])
dist.all_reduce(total)  # reported: 0-1, 3
