"""Call many kinds of collectives and messages with torch.distributed, to be recorded."""

import sys
import time

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel


def train(wrapped: nn.Module) -> float:
    optimizer = torch.optim.SGD(wrapped.parameters(), 0.01)
    for _ in range(2):
        optimizer.zero_grad()
        loss = wrapped(torch.ones(4, 8)).square().mean()
        loss.backward()
        optimizer.step()
    return float(loss.detach())


def main() -> None:
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    losses = [train(DistributedDataParallel(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1))))]
    sharded = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1))
    fully_shard(sharded, mesh=init_device_mesh("cpu", (ranks,)))
    losses.append(train(sharded))
    x = torch.full((1000,), float(rank))
    right, left, came = (rank + 1) % ranks, (rank - 1) % ranks, torch.empty(1000)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, x, right), dist.P2POp(dist.irecv, came, left)]):
        work.wait()
    if rank == 0:
        dist.send(x, 1, tag=5)
    if rank == 1:
        dist.recv(came, tag=5)
    begun = dist.all_reduce(x, async_op=True)
    time.sleep(0.2)
    begun.wait()
    summed = functional.all_reduce(x, "sum", dist.group.WORLD).sum()
    objects = [None] * ranks
    dist.all_gather_object(objects, {"rank": rank})
    dist.reduce(torch.ones(7), 0, dist.ReduceOp.MAX)
    half = dist.new_group([0, 1])
    dist.barrier(half)
    words = "RESULT", rank, [round(loss, 6) for loss in losses], float(summed), objects, sys.argv[1:]
    sys.stdout.write(f"{' '.join(map(str, words))}\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
