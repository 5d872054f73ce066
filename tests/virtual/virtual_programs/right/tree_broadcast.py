# ranks: 5
import torch
import torch.distributed as dist

def tree_broadcast(t, root=0):
    """Binomial tree, any number of ranks."""
    n = dist.get_world_size()
    v = (dist.get_rank() - root) % n
    mask = 1
    while mask < n:
        if v & mask:
            dist.recv(t, (v - mask + root) % n)
            break
        mask <<= 1
    mask >>= 1
    while mask:
        if v + mask < n and not v & (mask - 1) and not v & mask:
            dist.send(t, (v + mask + root) % n)
        mask >>= 1

dist.init_process_group("gloo")
for root in (0, 3):
    t = torch.full((7,), float(dist.get_rank()))
    tree_broadcast(t, root)
    assert (t == root).all()
dist.destroy_process_group()
