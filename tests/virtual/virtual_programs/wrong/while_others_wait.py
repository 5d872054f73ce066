# kind: deadlock
# ranks: 3
# Rank 0 waits in a collective for rank 1, which waits for a message from rank 0.
import torch, torch.distributed as dist
dist.init_process_group("gloo")
t = torch.ones(2)
if dist.get_rank() == 1:
    dist.recv(t, src=0)  # reported: 1
# fix: if dist.get_rank() == 0: dist.send(t, dst=1)
dist.all_reduce(t)  # reported: 0, 2
if dist.get_rank() == 0:  # fix:
    dist.send(t, dst=1)  # fix:
