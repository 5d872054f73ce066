# kind: deadlock
# ranks: 3
"""Everybody sends to the right with a blocking call, which may return only when the other receives."""
import torch
import torch.distributed as dist


def shift(t):
    n, me = dist.get_world_size(), dist.get_rank()
    out = torch.empty_like(t)
    dist.send(t, (me + 1) % n)  # reported: 0-2  # fix: sending = dist.isend(t, (me + 1) % n)
    dist.recv(out, (me + n - 1) % n)
    # fix: sending.wait()
    return out


dist.init_process_group(backend="gloo")
print(shift(torch.rand(512, 512)).sum())
