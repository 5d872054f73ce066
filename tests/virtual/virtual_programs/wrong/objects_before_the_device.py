# kind: exception
# ranks: 2
# options: --gpu
# Objects are gathered before ranks have chosen their GPUs, on which NCCL carries them.
import torch
import torch.distributed as dist

dist.init_process_group("nccl")
# fix: torch.cuda.set_device(dist.get_rank())
gathered = [None] * dist.get_world_size()
dist.all_gather_object(gathered, dist.get_rank())  # reported: 0; 1
torch.cuda.set_device(dist.get_rank())
