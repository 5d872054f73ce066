# kind: surplus message
# ranks: 2
import torch, torch.distributed as dist
dist.init_process_group("gloo")
batch = torch.ones(3)
for i in range(5 if dist.get_rank() == 0 else 4):  # fix: for i in range(4):
    if dist.get_rank() == 0:
        dist.send(batch, 1)  # reported: 0
    else:
        dist.recv(batch, 0)
