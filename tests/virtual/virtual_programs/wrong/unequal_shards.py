# kind: shape
# ranks: 4
# 10 samples on 4 ranks: two ranks have three, and two have two.
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, n = dist.get_rank(), dist.get_world_size()
scores = torch.arange(10.0)[rank::n]  # fix: scores = torch.nn.functional.pad(torch.arange(10.0), (0, 2))[rank::n]
everyone = [torch.empty_like(scores) for _ in range(n)]
dist.all_gather(everyone, scores)  # reported: 0-1; 2-3
print(torch.cat(everyone))
