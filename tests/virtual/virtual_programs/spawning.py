"""Tests that spawn processes: each spawn is a separate job, and one that hangs raises."""

import multiprocessing
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def work(rank, size):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", "12355"
    dist.init_process_group("gloo", rank=rank, world_size=size)
    x = torch.ones(3) * rank
    dist.all_reduce(x)
    assert x.tolist() == [size * (size - 1) / 2] * 3
    dist.destroy_process_group()


def hang(rank, size):
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:23456", rank=rank, world_size=size)
    if rank:
        dist.barrier()


def test_spawn():
    mp.spawn(work, args=(3,), nprocs=3, join=True)


def test_processes():
    processes = [mp.Process(target=work, args=(rank, 2)) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert all(process.exitcode == 0 for process in processes)


def test_fork_runs_a_nested_function():
    came = []

    def nested(rank):
        work(rank, 2)
        came.append(rank)

    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=nested, args=(rank,)) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert sorted(came) == [0, 1]


if __name__ == "__main__":
    test_spawn()
    test_processes()
    test_fork_runs_a_nested_function()
    print("all right")
    mp.spawn(hang, args=(2,), nprocs=2)
