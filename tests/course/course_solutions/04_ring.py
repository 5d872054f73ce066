import torch
import torch.distributed as dist


def ring_all_reduce(tensor: torch.Tensor) -> None:
    rank, world_size = dist.get_rank(), dist.get_world_size()
    left, right = (rank - 1) % world_size, (rank + 1) % world_size
    chunks = tensor.tensor_split(world_size)
    received = torch.empty_like(chunks[0])
    for step in range(2 * (world_size - 1)):
        sent, target = chunks[(rank - step) % world_size], chunks[(rank - step - 1) % world_size]
        incoming = received[: target.numel()]
        both = [dist.P2POp(dist.isend, sent, right), dist.P2POp(dist.irecv, incoming, left)]
        for work in dist.batch_isend_irecv(both):
            work.wait()
        if step < world_size - 1:
            target += incoming
        else:
            target.copy_(incoming)


def ring_seconds(world_size: int, nbytes: int, alpha: float, beta: float) -> float:
    return 2 * (world_size - 1) * (alpha + nbytes / world_size * beta)


def ring_wins_from(world_size: int, alpha: float, beta: float) -> float:
    p = world_size
    return alpha / beta * p * (p - 2) / (p - 1) ** 2
