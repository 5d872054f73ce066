"""Processes that start in a different order than their ranks, after a process that is not a rank."""

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

SIZE = 3


def fill(items):
    for _ in range(SIZE):
        items.put(1.0)


def work(rank, items):
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29517", rank=rank, world_size=SIZE)
    assert dist.get_rank() == rank
    total = torch.tensor([items.get()])
    dist.all_reduce(total)
    x = torch.full((1,), float(rank))
    dist.broadcast(x, src=2)
    assert (total.item(), x.item()) == (SIZE, 2.0)
    if rank == 0:
        print("all right")


if __name__ == "__main__":
    context = mp.get_context("spawn")
    items = context.Queue()
    processes = [context.Process(target=fill, args=(items,))]
    processes += [context.Process(target=work, args=(rank, items)) for rank in reversed(range(SIZE))]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
