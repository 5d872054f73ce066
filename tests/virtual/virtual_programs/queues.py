"""Tests whose processes return results through a queue, which is read before they are joined."""

import multiprocessing

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def give(rank, size, queue):
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:23456", rank=rank, world_size=size)
    x = torch.full((2,), float(rank))
    dist.all_reduce(x)
    queue.put((rank, x + rank))


@pytest.mark.parametrize("of", [mp, mp.get_context("spawn"), multiprocessing], ids=["torch", "context", "python"])
def test_queue_is_read_before_processes_are_joined(of):
    queues = of.Queue(), of.SimpleQueue()
    processes = [of.Process(target=give, args=(rank, 2, queues[rank])) for rank in range(2)]
    for process in processes:
        process.start()
    got = dict(queue.get() for queue in queues)
    assert {rank: values.tolist() for rank, values in got.items()} == {0: [1.0, 1.0], 1: [2.0, 2.0]}
    assert queues[0].empty()
    for process in processes:
        process.join()
        assert process.exitcode == 0
