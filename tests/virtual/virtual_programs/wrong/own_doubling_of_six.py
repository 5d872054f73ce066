# kind: wrong all_reduce
# ranks: 6
# Recursive doubling on six ranks skips partners that do not exist.
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
total = torch.full((3,), float(rank + 1))
step = 1
while step < world:
    other = rank ^ step
    if other < world:
        got = torch.empty_like(total)
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, total, other), dist.P2POp(dist.irecv, got, other)]):
            work.wait()
        total = total + got  # reported: 2; 3
    step *= 2
    # fix: step = world
# fix: total = torch.full((3,), float(rank + 1))
# fix: dist.all_reduce(total)
