# ranks: 3
# Ranks print (or download, or build) in turns.
import torch.distributed as dist
dist.init_process_group("gloo")
for turn in range(dist.get_world_size()):
    if dist.get_rank() == turn:
        print(f"rank {turn} of {dist.get_world_size()}", flush=True)
    dist.barrier()
if dist.get_rank() != 0:
    dist.barrier()   # wait until rank 0 has "downloaded"
else:
    dist.barrier()
dist.monitored_barrier() if dist.get_backend() == "gloo" else dist.barrier()
dist.destroy_process_group()
