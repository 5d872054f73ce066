# kind: deadlock
# ranks: 4
# In a tree, a leaf waits for the sum before it has sent its own part.
import torch, torch.distributed as dist
dist.init_process_group("gloo")
me = dist.get_rank()
x = torch.tensor([1.0 * me])
buf = torch.zeros(1)
if me == 0:
    for child in (1, 2):
        dist.recv(buf, child)  # reported: 0
        x += buf
    for child in (1, 2):
        dist.send(x, child)
elif me == 1:
    dist.recv(buf, 3)  # reported: 1
    dist.send(x + buf, 0)
    dist.recv(x, 0)
    dist.send(x, 3)
elif me == 2:
    dist.send(x, 0)  # reported: 2
    dist.recv(x, 0)
else:
    dist.recv(buf, 1)  # reported: 3  # fix: dist.send(x, 1)
    dist.send(x, 1)  # fix: dist.recv(x, 1)
