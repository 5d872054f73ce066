# ranks: 6
# Recursive doubling on six ranks: two ranks first give their data away, and get the sum at the end.
import torch
import torch.distributed as dist


def all_reduce(t):
    rank, world = dist.get_rank(), dist.get_world_size()
    power = 1 << (world.bit_length() - 1)
    got = torch.empty_like(t)
    if rank >= power:
        dist.send(t, rank - power)
        dist.recv(got, rank - power)
        return got
    if rank + power < world:
        dist.recv(got, rank + power)
        t = t + got
    distance = 1
    while distance < power:
        sending = dist.isend(t, rank ^ distance)
        dist.recv(got, rank ^ distance)
        sending.wait()
        t = t + got
        distance *= 2
    if rank + power < world:
        dist.send(t, rank + power)
    return t


dist.init_process_group("gloo")
for values in (torch.full((4,), float(dist.get_rank())), torch.randn(5)):
    print((all_reduce(values) / dist.get_world_size()).sum().item())
