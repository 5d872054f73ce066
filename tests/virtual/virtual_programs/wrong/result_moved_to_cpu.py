# kind: exception
# ranks: 2
# options: --gpu
# Predictions go to the CPU before they are gathered.
import torch
import torch.distributed as dist

dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank())
found = torch.randn(4, 2, device="cuda").argmax(1).cpu()  # fix: found = torch.randn(4, 2, device="cuda").argmax(1)
everyone = [torch.empty_like(found) for _ in range(dist.get_world_size())]
dist.all_gather(everyone, found)  # reported
