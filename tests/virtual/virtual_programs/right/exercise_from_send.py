# ranks: 4
# Exercises 1 and 2: collectives built only from send and recv.
import torch
import torch.distributed as dist

def broadcast(tensor, src):
    if dist.get_rank() == src:
        for other in range(dist.get_world_size()):
            if other != src:
                dist.send(tensor, other)
    else:
        dist.recv(tensor, src)

def reduce(tensor, dst):
    if dist.get_rank() == dst:
        for other in range(dist.get_world_size()):
            if other != dst:
                buf = torch.empty_like(tensor)
                dist.recv(buf, other)
                tensor += buf
    else:
        dist.send(tensor, dst)

def all_reduce(tensor):
    reduce(tensor, 0)
    broadcast(tensor, 0)

dist.init_process_group("gloo")
t = torch.ones(2, 3) * dist.get_rank()
all_reduce(t)
assert (t == 6).all()
t = torch.tensor([dist.get_rank()])
broadcast(t, 3)
assert t.item() == 3
