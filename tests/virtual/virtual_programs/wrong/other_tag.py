# kind: tag
# ranks: 2
import torch, torch.distributed as dist
GRADIENTS, WEIGHTS = 1, 2
dist.init_process_group("gloo")
t = torch.zeros(8)
if dist.get_rank() == 1:
    dist.send(t, 0, tag=GRADIENTS)  # reported: 1
else:
    dist.recv(t, 1, tag=WEIGHTS)  # reported: 0  # fix: dist.recv(t, 1, tag=GRADIENTS)
