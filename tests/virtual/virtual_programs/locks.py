"""Processes that share locks, events and barriers of multiprocessing; one lock is held during a collective."""

import time
from contextlib import suppress
from threading import BrokenBarrierError

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

SIZE = 3


def work(rank, lock, barrier, event, condition, number, two):
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29511", rank=rank, world_size=SIZE)
    pairs = [dist.new_group([0, 1]), dist.new_group([1, 2])]
    if rank != 2:
        x = torch.ones(1)
        dist.all_reduce(x, group=pairs[0])
    with lock:  # held while the others come to it
        number.value += 1
        dist.get_world_size()
        if rank == 0:
            event.set()
    event.wait()
    assert event.is_set()
    barrier.wait()
    assert number.value == SIZE
    barrier.wait()
    with condition:
        if rank == 0:
            number.value = 10
            condition.notify_all()
        else:
            condition.wait_for(lambda: number.value == 10)
    x = torch.full((1,), float(rank))
    dist.all_reduce(x)
    assert x.item() == 3.0
    with two:
        dist.barrier()
    dist.barrier()
    if rank == 2:
        with suppress(ValueError):
            two.release()
            raise SystemExit("a bounded semaphore is released too often")
        time.sleep(1)
        barrier.reset()
    else:
        with suppress(BrokenBarrierError):
            barrier.wait()
            raise SystemExit("a barrier is passed that was reset")
    if barrier.wait() == SIZE - 1:
        print("all right")


if __name__ == "__main__":
    context = mp.get_context("spawn")
    shared = context.Lock(), context.Barrier(SIZE), context.Event(), context.Condition(), context.Value("i", 0)
    shared += (context.BoundedSemaphore(SIZE),)
    mp.spawn(work, shared, nprocs=SIZE)
