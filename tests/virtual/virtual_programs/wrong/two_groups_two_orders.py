# kind: group order
# ranks: 4
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
r = dist.get_rank()
left, middle = dist.new_group([0, 1]), dist.new_group([1, 2])
right, outer = dist.new_group([2, 3]), dist.new_group([0, 3])
mine = {0: (left, outer), 1: (middle, left), 2: (right, middle), 3: (outer, right)}[r]  # fix: mine = {0: (left, outer), 1: (left, middle), 2: (middle, right), 3: (right, outer)}[r]
x = torch.ones(4)
for group in mine:
    dist.all_reduce(x, group=group)  # reported: 0-3
