# kind: exception
# ranks: 2
import torch, torch.distributed as dist
dist.init_process_group("gloo")
t = torch.ones(2)
out = [torch.empty(2) for _ in range(dist.get_world_size())]
dist.gather(t, gather_list=out, dst=0)  # reported: 1  # fix: dist.gather(t, gather_list=out if dist.get_rank() == 0 else None, dst=0)
