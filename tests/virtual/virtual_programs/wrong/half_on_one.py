# kind: dtype
# ranks: 4
import torch, torch.distributed as dist
dist.init_process_group("gloo")
loss = torch.zeros(1)
if dist.get_rank() == 3:
    loss = loss.to(torch.bfloat16)   # autocast left it so
dist.all_reduce(loss)  # reported: 0-2; 3  # fix: dist.all_reduce(loss.float())
