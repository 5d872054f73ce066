# ranks: 2
# kind: shared buffer
"""A list that is multiplied holds one tensor as often as there are ranks."""
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
parts = [torch.zeros(2)] * dist.get_world_size()  # fix: parts = [torch.zeros(2) for _ in range(dist.get_world_size())]
dist.all_gather(parts, torch.full((2,), float(dist.get_rank())))  # reported: 0-1
print(torch.cat(parts))
dist.destroy_process_group()
