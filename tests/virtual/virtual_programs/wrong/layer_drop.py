# kind: early exit
# ranks: 2
# A layer is dropped at random, and each rank throws its own dice.
import random
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
random.seed(dist.get_rank() + 3)  # fix: random.seed(3)
drawn = [random.random() for _ in range(8)]
for p in drawn:
    if p < 0.5:
        continue
    dist.all_reduce(torch.ones(4))  # reported: 0
