import torch
import torch.distributed as dist


def broadcast(tensor: torch.Tensor, src: int) -> None:
    if dist.get_rank() == src:
        for rank in range(dist.get_world_size()):
            if rank != src:
                dist.send(tensor, rank)
    else:
        dist.recv(tensor, src)


def reduce(tensor: torch.Tensor, dst: int) -> None:
    if dist.get_rank() != dst:
        dist.send(tensor, dst)
        return
    received = torch.empty_like(tensor)
    for rank in range(dist.get_world_size()):
        if rank != dst:
            dist.recv(received, rank)
            tensor += received


def all_reduce(tensor: torch.Tensor) -> None:
    reduce(tensor, 0)
    broadcast(tensor, 0)


def all_reduce_seconds(world_size: int, nbytes: int, alpha: float, beta: float) -> float:
    return 2 * (world_size - 1) * (alpha + nbytes * beta)
