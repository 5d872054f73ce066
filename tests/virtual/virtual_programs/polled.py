"""Ranks poll a queue with a timeout until an event tells them that no more items come."""

import queue

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

ITEMS = 9


def produce(items, is_over):
    for number in range(ITEMS):
        items.put(number)
    is_over.set()


def consume(rank, items, is_over):
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29515", rank=rank, world_size=2)
    taken = torch.zeros(1)
    while not is_over.wait(timeout=0.01) or taken.item() < ITEMS:
        try:
            items.get(timeout=0.5)
            taken += 1
        except queue.Empty:
            break
    dist.all_reduce(taken)
    assert taken.item() == ITEMS
    print("all right")


if __name__ == "__main__":
    context = mp.get_context("spawn")
    shared = context.Queue(), context.Event()
    processes = [context.Process(target=consume, args=(rank, *shared)) for rank in range(2)]
    processes.append(context.Process(target=produce, args=shared))
    for process in processes:
        process.start()
    for process in processes:
        process.join()
