# kind: non-member
# ranks: 4
# All ranks reduce in a group of two ranks; torch warns once and continues.
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
first = dist.new_group([0, 1])
value = torch.tensor([1.0])
dist.all_reduce(value, group=first)  # reported: 2-3  # fix: if dist.get_rank() in (0, 1): dist.all_reduce(value, group=first)
print(dist.get_rank(), value.item())
