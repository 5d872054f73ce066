# kind: early exit
# ranks: 4
import torch.distributed as dist
dist.init_process_group("gloo")
dist.barrier()
if dist.get_rank() in (1, 2):
    print("once more")
    dist.barrier()  # reported: 1-2  # fix:
