# kind: new_group
# ranks: 4
import torch, torch.distributed as dist
dist.init_process_group("gloo")
r = dist.get_rank()
lists = [[0, 1], [2, 3]]
if r >= 2:  # fix:
    lists = lists[::-1]     # "mine first"  # fix:
groups = [dist.new_group(l) for l in lists]  # reported: 0-1; 2-3
t = torch.ones(1)
dist.all_reduce(t, group=groups[0])  # fix: dist.all_reduce(t, group=groups[r // 2])
