import torch
import torch.distributed as dist


def exchange(mine: torch.Tensor, theirs: torch.Tensor, peer: int) -> None:
    if dist.get_rank() < peer:
        dist.send(mine, peer)
        dist.recv(theirs, peer)
    else:
        dist.recv(theirs, peer)
        dist.send(mine, peer)


def shift(mine: torch.Tensor, received: torch.Tensor) -> None:
    rank, world_size = dist.get_rank(), dist.get_world_size()
    both = [
        dist.P2POp(dist.isend, mine, (rank + 1) % world_size),
        dist.P2POp(dist.irecv, received, (rank - 1) % world_size),
    ]
    for work in dist.batch_isend_irecv(both):
        work.wait()


def find_cycle(waits_for: dict[int, int]) -> list[int]:
    for rank in sorted(waits_for):
        path = [rank]
        while path[-1] in waits_for:
            following = waits_for[path[-1]]
            if following == rank:
                return path
            if following in path:
                break
            path.append(following)
    return []
