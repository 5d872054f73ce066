import math

import torch
import torch.distributed as dist


def tree_broadcast(tensor: torch.Tensor) -> None:
    rank, world_size = dist.get_rank(), dist.get_world_size()
    have = 1
    while have < world_size:
        if rank < have and rank + have < world_size:
            dist.send(tensor, rank + have)
        elif have <= rank < 2 * have:
            dist.recv(tensor, rank - have)
        have *= 2


def halving_doubling_all_reduce(tensor: torch.Tensor) -> None:
    rank, world_size = dist.get_rank(), dist.get_world_size()
    parts = []
    part, distance = tensor, world_size // 2
    while distance:
        lower, upper = part.tensor_split(2)
        keep, give = (upper, lower) if rank & distance else (lower, upper)
        received = torch.empty_like(keep)
        swap(give, received, rank ^ distance)
        keep += received
        parts.append((rank ^ distance, keep, give))
        part, distance = keep, distance // 2
    for peer, keep, give in reversed(parts):
        swap(keep, give, peer)


def swap(mine: torch.Tensor, theirs: torch.Tensor, peer: int) -> None:
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, mine, peer), dist.P2POp(dist.irecv, theirs, peer)]):
        work.wait()


def tree_seconds(world_size: int, nbytes: int, alpha: float, beta: float) -> float:
    return 2 * math.log2(world_size) * (alpha + nbytes * beta)


def ring_wins_from(world_size: int, alpha: float, beta: float) -> float:
    p, depth = world_size, math.log2(world_size)
    return alpha / beta * p * (p - 1 - depth) / (p * depth - (p - 1))
