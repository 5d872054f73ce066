# ranks: 0
"""A course's first collectives: point to point, started by the program itself, tested by what each rank ends with."""

import os
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

WORLD_SIZE = 3


def broadcast(tensor: torch.Tensor, rank: int, world_size: int, src: int = 0) -> None:
    if rank == src:
        for other in range(world_size):
            if other != src:
                dist.send(tensor, dst=other)
    else:
        received = torch.zeros_like(tensor)
        dist.recv(received, src=src)
        tensor.copy_(received)


def reduce(tensor: torch.Tensor, rank: int, world_size: int, dst: int = 0, op: str = "sum") -> None:
    if rank != dst:
        dist.send(tensor, dst=dst)
        return
    for other in range(world_size):
        if other != dst:
            received = torch.zeros_like(tensor)
            dist.recv(received, src=other)
            tensor += received
    if op == "mean":
        tensor /= world_size


def all_reduce(tensor: torch.Tensor, rank: int, world_size: int, op: str = "sum") -> None:
    reduce(tensor, rank, world_size, dst=0, op=op)
    broadcast(tensor, rank, world_size, src=0)


def ring_all_reduce(tensor: torch.Tensor, rank: int, world_size: int, op: str = "sum") -> None:
    chunks = list(tensor.chunk(world_size))
    to, source = (rank + 1) % world_size, (rank - 1) % world_size
    for step in range(2 * (world_size - 1)):
        received = torch.zeros_like(chunks[(rank - step - 1) % world_size])
        operations = [
            dist.P2POp(dist.isend, chunks[(rank - step) % world_size].contiguous(), to),
            dist.P2POp(dist.irecv, received, source),
        ]
        for request in dist.batch_isend_irecv(operations):
            request.wait()
        if step < world_size - 1:
            chunks[(rank - step - 1) % world_size] += received
        else:
            chunks[(rank - step - 1) % world_size].copy_(received)
    if op == "mean":
        tensor /= world_size


def check_all_reduce(rank: int, world_size: int, reduced: Callable[..., None]) -> None:
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", "12345"
    dist.init_process_group(backend="gloo", rank=rank, world_size=world_size)
    for op, expected in (("sum", 3.0), ("mean", 1.0)):
        tensor = torch.full((6,), float(rank))
        reduced(tensor, rank, world_size, op=op)
        torch.testing.assert_close(tensor, torch.full((6,), expected))
    for src in range(world_size):
        tensor = torch.tensor([float(rank)])
        broadcast(tensor, rank, world_size, src)
        assert tensor.item() == src
    dist.destroy_process_group()


if __name__ == "__main__":
    for reduced in (all_reduce, ring_all_reduce):
        mp.spawn(check_all_reduce, args=(WORLD_SIZE, reduced), nprocs=WORLD_SIZE, join=True)
    print("all tests passed")
