# kind: new_group
# ranks: 4
# Every rank creates only the group of its own host.
import os
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
host = dist.get_rank() // 2
ranks = [2 * host, 2 * host + 1]
local = dist.new_group(ranks)  # reported: 0-1; 2-3  # fix: local = [dist.new_group([0, 1]), dist.new_group([2, 3])][host]
t = torch.ones(1)
dist.all_reduce(t, group=local)
