# kind: early exit
# ranks: 2
# Out of memory on one rank is caught, and the rank goes on to the next batch alone.
import torch, torch.distributed as dist
dist.init_process_group("gloo")
def step(i):
    # fix: failed = torch.tensor(float(dist.get_rank() == 0 and i == 1))
    # fix: dist.all_reduce(failed)
    if dist.get_rank() == 0 and i == 1:  # fix: if failed:
        raise RuntimeError("out of memory")
    dist.all_reduce(torch.ones(2))  # reported: 1
for i in range(3):
    try:
        step(i)
    except RuntimeError as error:
        print("skipped:", error)
