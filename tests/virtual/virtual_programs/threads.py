"""Threads of ranks communicate while their rank waits for them, except with the argument ``beside``."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
group = dist.new_group(list(range(size)))
values = []


def reduce(number):
    x = torch.tensor([float(number)])
    dist.all_reduce(x, group=group)
    values.append(x.item())
    return x.item()


def serve():
    x = torch.zeros(1)
    for peer in range(1, size):
        dist.recv(x, peer)
        dist.send(x, peer)


if sys.argv[1:] == ["beside"]:
    if rank == 0:
        threading.Thread(target=serve).start()
    else:
        x = torch.ones(1)
        dist.send(x, 0)
        dist.recv(x, 0)
    dist.barrier()
thread = threading.Thread(target=reduce, args=(1,))
thread.start()
dist.all_reduce(torch.ones(3))
thread.join()
with ThreadPoolExecutor(1) as pool:
    assert pool.submit(reduce, 2).result() == 2.0 * size
assert values == [size, 2.0 * size]
threading.Thread(target=lambda: print("last", reduce(3))).start()  # which Python joins at the end
